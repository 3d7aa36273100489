"""Label Studio's ML backend against a double of it, with the bodies that the real one sends."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cala
from app.clients import b64, client_of, png, problem
from app.label_studio_double import CONFIG, CREATED_AT, PERSONAL, TOKEN, studio_double
from app.test_fuzz import FUZZ, fine
from cala.app.settings import LabelStudioAccess
from refusals import refused

SECRET = "a-token-of-16-letters"


@pytest.fixture
def studio():
    with studio_double() as double:
        yield double


@pytest.fixture
def backend(folder, studio):
    with client_of(folder, label_studio=LabelStudioAccess(studio.url, TOKEN)) as client:
        yield client


def photos_of(folder) -> dict[str, int]:
    model = cala.load(folder).current
    counts = model.photos.counts()
    numbers = zip(model.names, model.classifier.head_.classes, strict=True)
    return {name: counts[number] for name, number in numbers}


def hear(backend, body: dict) -> None:
    answer = backend.post("/webhook", json=body)
    assert (answer.status_code, answer.json()["status"]) == (200, "ok"), answer.text


def test_it_is_not_there_unless_asked_for(client):
    for path in ("/health", "/versions"):
        problem(client.get(path), 404, "not_found")
    assert not {"/setup", "/predict", "/webhook"} & set(client.get("/openapi.json").json()["paths"])


def test_a_project_is_connected(backend, studio):
    assert backend.get("/health").json() == {"status": "UP"}
    told = backend.post("/setup", json=studio.setup()).json()
    assert told == {"model_version": "birds 1"}
    assert backend.get("/versions").json() == {"versions": ["birds 1"]}
    for config in ("<View", "<View/>", '<!DOCTYPE x [<!ENTITY a "b">]><View/>', CONFIG * 3):
        problem(backend.post("/setup", json=studio.setup(config)), 422, "bad_value", "label_config")
    text = '<View><Text name="t" value="$t"/><Choices name="c" toName="t"/></View>'
    problem(backend.post("/setup", json=studio.setup(text)), 422, "bad_value", "label_config")


def test_predictions_have_scores(backend, studio):
    tasks = [studio.upload(png(3, 100)), studio.upload(png(18, 100)), studio.upload(png(4, 100))]
    tasks += [studio.upload(b"no photo"), studio.link("/data/upload/1/gone.png")]
    known, strange, elsewhere, *broken = backend.post(
        "/predict", json=studio.predict(*tasks)
    ).json()["results"]
    (result,) = known["result"]
    assert (result["from_name"], result["to_name"], result["type"]) == ("bird", "photo", "choices")
    assert result["value"] == {"choices": ["class 3"]}
    assert known["score"] == result["score"] > 0.5
    assert known["model_version"] == "birds 1"
    assert strange == elsewhere == {"result": [], "score": 0.0, "model_version": "birds 1"}
    assert broken == [[], []]
    assert backend.post("/predict", json=studio.predict()).json() == {"results": []}


def test_a_choice_may_have_an_alias_or_a_former_name(backend, folder, studio):
    task = studio.upload(png(3, 100))
    config = CONFIG.replace('value="class 3"', 'value="Third" alias="class 3"')
    answer = backend.post("/predict", json=studio.predict(task, config=config)).json()
    assert answer["results"][0]["result"][0]["value"] == {"choices": ["class 3"]}
    cala.load(folder).rename("class 3", "wren")
    hear(backend, studio.created(1, studio.upload(png(12, 0)), "heron"))  # sees the new name
    answer = backend.post("/predict", json=studio.predict(task)).json()
    assert answer["results"][0]["result"][0]["value"] == {"choices": ["class 3"]}


def test_annotations_teach_and_deleting_them_takes_that_back(backend, folder, studio):
    tasks = [studio.upload(png(12, number)) for number in range(4)]
    for id, task in enumerate(tasks[:3], 1):
        hear(backend, studio.created(id, task, "heron"))
    assert photos_of(folder)["heron"] == 3
    told = backend.post("/predict", json=studio.predict(tasks[3])).json()["results"][0]
    assert told["result"][0]["value"] == {"choices": ["heron"]}
    assert told["model_version"] == "birds 4"
    hear(backend, studio.deleted(2))
    assert photos_of(folder)["heron"] == 2
    hear(backend, studio.deleted(1, 3))
    assert "heron" not in photos_of(folder)
    assert cala.load(folder).history()[-1]["action"] == "forget"


def test_a_changed_annotation_moves_the_photo(backend, folder, studio):
    task = studio.upload(png(12, 0))
    hear(backend, studio.created(1, task, "heron"))
    hear(backend, studio.updated(1, task, "robin"))
    assert photos_of(folder).get("heron") is None
    assert photos_of(folder)["robin"] == 1
    hear(backend, studio.updated(1, task, "class 5"))
    assert photos_of(folder)["class 5"] == 9
    hear(backend, studio.updated(1, task, skipped=True))
    assert photos_of(folder)["class 5"] == 8
    hear(backend, studio.updated(1, task, "robin"))
    hear(backend, studio.updated(1, task, "robin", "heron"))  # a photo shows one thing
    assert "robin" not in photos_of(folder)


def test_a_repeat_teaches_once_also_after_a_restart(folder, studio):
    access = LabelStudioAccess(studio.url, TOKEN)
    task = studio.upload(png(12, 0))
    first, second = studio.created(1, task, "heron"), studio.updated(1, task, "robin")
    with client_of(folder, label_studio=access) as backend:
        for body in (first, first, second, second, first):
            hear(backend, body)
    with client_of(folder, label_studio=access) as backend:
        for body in (first, second):
            hear(backend, body)
        assert photos_of(folder)["robin"] == 1
        assert cala.load(folder).version == 3
        for _ in range(2):
            hear(backend, studio.deleted(1))
        hear(backend, second)  # it was deleted, so it says nothing any more
        assert cala.load(folder).version == 4
    assert "robin" not in photos_of(folder)


def test_a_deletion_may_overtake_what_it_deletes(backend, folder, studio):
    body = studio.created(1, studio.upload(png(12, 0)), "heron")
    hear(backend, studio.deleted(1))
    hear(backend, body)
    assert "heron" not in photos_of(folder)


def test_what_people_undo_is_not_taught_again(backend, folder, studio):
    body = studio.created(1, studio.upload(png(12, 0)), "heron")
    hear(backend, body)
    backend.post("/v1/undo")
    hear(backend, body)
    hear(backend, studio.deleted(1))
    assert "heron" not in photos_of(folder)


def test_several_annotations_of_one_photo(backend, folder, studio):
    """The newest decides, and the one before it once that is deleted."""
    task = studio.upload(png(12, 0))
    for id, name in ((1, "heron"), (2, "heron"), (3, "robin")):
        hear(backend, studio.created(id, task, name))
    assert photos_of(folder)["robin"] == 1
    hear(backend, studio.deleted(1))
    assert photos_of(folder)["robin"] == 1
    hear(backend, studio.deleted(3))
    assert photos_of(folder)["heron"] == 1
    hear(backend, studio.deleted(2))
    assert not {"heron", "robin"} & set(photos_of(folder))


def test_a_photo_that_the_model_had_goes_back_where_it_was(backend, folder, photos, studio):
    known = sorted((photos / "known" / "class 5").iterdir())[0].read_bytes()
    task = studio.upload(known)
    hear(backend, studio.created(1, task, "class 5"))
    hear(backend, studio.deleted(1))
    assert photos_of(folder)["class 5"] == 8
    hear(backend, studio.created(2, task, "heron"))
    assert (photos_of(folder)["class 5"], photos_of(folder)["heron"]) == (7, 1)
    hear(backend, studio.deleted(2))
    assert (photos_of(folder)["class 5"], photos_of(folder).get("heron")) == (8, None)


def test_a_photo_that_was_moved_by_hand_stays(backend, folder, studio):
    hear(backend, studio.created(1, studio.upload(png(12, 0)), "heron"))
    moved = {"name": "class 5", "images": [{"data": b64(png(12, 0))}]}
    assert backend.post("/v1/photos", json=moved).status_code == 201
    hear(backend, studio.deleted(1))
    assert photos_of(folder)["class 5"] == 9


def test_annotations_in_bulk(backend, folder, studio):
    """As `predictions_to_annotations` of its data manager sends them; one has a bad photo."""
    tasks = [studio.upload(png(12, 0)), studio.upload(b"no photo"), studio.upload(png(12, 1))]
    listed = [studio.annotation(id, task, "heron") for id, task in enumerate(tasks, 1)]
    body = {
        **{"action": "ANNOTATIONS_CREATED", "annotation": listed, "project": studio.project()},
        **{"task": [studio.task(task) for task in tasks]},
    }
    problem(backend.post("/webhook", json=body), 422, "bad_image")
    assert photos_of(folder)["heron"] == 2


def test_other_news_change_nothing(backend, folder, studio):
    task = studio.upload(png(12, 0))
    other = {"action": "TASKS_DELETED", "tasks": [{"id": task}], "project": studio.project()}
    for body in (other, {"action": "START_TRAINING", "project": studio.project()}, {"action": "X"}):
        assert backend.post("/webhook", json=body).json()["status"] == "ignored"
    hear(backend, studio.created(1, task, skipped=True))
    hear(backend, studio.created(2, task, "unknown"))
    assert cala.load(folder).version == 1
    assert studio.asked == []


def test_the_history_names_what_was_learned(backend, studio):
    hear(backend, studio.created(1, studio.upload(png(12, 0)), "heron"))
    hear(backend, studio.created(2, 1, "heron"))
    hear(backend, studio.deleted(1, 2))
    told = backend.get("/v1/history").json()["changes"]
    assert [one["action"] for one in told] == ["forget", "annotate", "annotate", "add", "fit"]
    assert told[0]["text"] == "forget 3c5d258c-x1.png of heron"
    assert not any("annotation" in one for one in told)
    (row,) = backend.get("/v1/classes", params={"search": "class 5"}).json()["classes"]
    assert row["photos"] == 8


# Where photos come from


def read(client, studio, address: str):
    return client.post("/predict", json=studio.predict(studio.link(address)))


def test_photos_come_from_label_studio_and_nowhere_else(backend, studio):
    studio.files["/data/upload/1/a%20b.png"] = png(3, 100)
    assert read(backend, studio, "/data/upload/1/a b.png").json()["results"][0]["result"]
    assert read(backend, studio, f"{studio.url}/data/upload/1/a%20b.png").status_code == 200
    studio.asked.clear()
    other = studio.url.replace("127.0.0.1", "localhost")
    for address in (
        *(f"{other}/data/upload/1/a.png", "//127.0.0.1:9/data/x", "http://169.254.169.254/data/x"),
        *(
            f"{studio.url}@127.0.0.1:9/data/x",
            "file:///etc/passwd",
            "s3://bucket/a.png",
            "ftp://x/",
        ),
        *("/api/projects", "/data/../api/projects", "/data/%2e%2e/api/projects", "http://[/data/"),
        *("/user/logout", "", "https" + studio.url[4:] + "/data/x"),
    ):
        problem(read(backend, studio, address), 422, "not_fetched", "task")
    assert studio.asked == []


def test_redirects_are_not_followed(backend, studio):
    studio.redirects["/data/upload/1/away.png"] = f"{studio.url}/data/upload/1/there.png"
    studio.files["/data/upload/1/there.png"] = png(3, 100)
    problem(read(backend, studio, "/data/upload/1/away.png"), 422, "not_fetched")
    assert studio.asked == ["/data/upload/1/away.png"]


def test_photos_in_the_task_itself(backend, studio):
    found = read(backend, studio, f"data:image/png;base64,{b64(png(3, 100))}").json()["results"]
    assert found[0]["result"]
    for address in ("data:image/png;base64,%", "data:text/plain,x", "data:"):
        problem(read(backend, studio, address), 422, "not_fetched")


def test_local_files_are_below_a_folder(folder, studio, tmp_path):
    root = tmp_path / "files"
    (root / "birds").mkdir(parents=True)
    (root / "birds" / "1.png").write_bytes(png(3, 100))
    (tmp_path / "secret.png").write_bytes(png(3, 101))
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    access = LabelStudioAccess(studio.url, TOKEN, root)
    with client_of(folder, label_studio=access) as client:
        found = read(client, studio, "/data/local-files/?d=birds/1.png")
        assert found.json()["results"][0]["result"]
        outside = ("../secret.png", "link.png", f"{tmp_path}/secret.png", "birds", "", "%00")
        for name in outside:
            problem(read(client, studio, f"/data/local-files/?d={name}"), 422, "not_fetched")
    assert studio.asked == []
    with client_of(folder, label_studio=LabelStudioAccess(studio.url, TOKEN)) as client:
        problem(read(client, studio, "/data/local-files/?d=birds/1.png"), 422, "not_fetched")
    assert len(studio.asked) == 1  # Label Studio itself was asked


def test_a_photo_may_be_too_large(folder, studio):
    access = LabelStudioAccess(studio.url, TOKEN)
    with client_of(folder, limits={"file": 100}, label_studio=access) as client:
        answer = client.post("/predict", json=studio.predict(studio.upload(bytes(101))))
        problem(answer, 413, "file_too_large")
        problem(
            read(client, studio, f"data:image/png;base64,{b64(bytes(101))}"), 413, "file_too_large"
        )


@pytest.mark.parametrize(
    ("token", "status"), [(TOKEN, 200), (PERSONAL, 200), ("", 422), ("x", 422)]
)
def test_label_studio_asks_for_a_token(folder, studio, token, status):
    with client_of(folder, label_studio=LabelStudioAccess(studio.url, token)) as client:
        for number in range(2):
            body = studio.predict(studio.upload(png(3, 100 + number)))
            assert client.post("/predict", json=body).status_code == status
    assert studio.asked.count("/api/token/refresh") == {PERSONAL: 1, "a.b.c": 2}.get(token, 0)


def test_label_studio_may_be_away(folder, studio):
    access = LabelStudioAccess("http://127.0.0.1:1", TOKEN)
    with client_of(folder, label_studio=access) as client:
        body = studio.created(1, studio.upload(png(12, 0)), "heron")
        problem(client.post("/webhook", json=body), 422, "not_fetched")
    assert cala.load(folder).version == 1


def test_an_address_is_checked():
    for url in ("labels.example", "ftp://x", "http://", "http://a@b", "http://a:b@c", "http://a b"):
        with refused(url, field="label_studio"):
            LabelStudioAccess(url)
    assert "secret" not in repr(LabelStudioAccess("http://labels.example:8080/sub/", "secret"))


# Who may ask


def test_the_token_is_the_password(folder, studio):
    access = LabelStudioAccess(studio.url, TOKEN)
    reading = "a-read-token-of-letters"
    body = studio.created(1, studio.upload(png(12, 0)), "heron")
    with client_of(folder, token=SECRET, read_token=reading, label_studio=access) as client:
        for path in ("/health", "/versions"):
            problem(client.get(path), 401, "token_needed")
            problem(client.get(path, auth=("cala", "another-token-of-16")), 401, "token_needed")
            assert client.get(path, auth=("cala", reading)).status_code == 200
        odd = {"authorization": "Basic %%%"}
        problem(client.post("/webhook", json=body, headers=odd), 401, "token_needed")
        problem(client.post("/webhook", json=body), 401, "token_needed")
        problem(client.post("/webhook", json=body, auth=("cala", reading)), 403, "read_only")
        asked = client.post("/predict", json=studio.predict(1), auth=("cala", reading))
        assert asked.status_code == 200
        bearer = {"authorization": f"Bearer {SECRET}"}
        assert client.post("/webhook", json=body, headers=bearer).json()["status"] == "ok"
        again = client.post("/webhook", json=body, auth=("anyone", SECRET))
        assert again.json()["status"] == "ok"
    with client_of(folder, token=SECRET) as client:  # without Label Studio nothing sends it
        problem(client.get("/v1/classes", auth=("cala", SECRET)), 401, "token_needed")


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@FUZZ
@given(data=st.data())
def test_whatever_is_sent_the_answer_is_no_mistake_of_its_own(folder, data):
    with studio_double() as studio:
        access = LabelStudioAccess(studio.url, TOKEN)
        task = studio.upload(png(12, 0))
        bodies = {
            "/webhook": [studio.created(1, task, "heron"), studio.deleted(1)],
            "/predict": [studio.predict(task)],
            "/setup": [studio.setup()],
        }
        with client_of(folder, label_studio=access) as client:
            for _ in range(3):
                path = data.draw(st.sampled_from(sorted(bodies)))
                body = json.loads(json.dumps(data.draw(st.sampled_from(bodies[path]))))
                place = body
                while isinstance(place, (dict, list)) and place:  # replace a value somewhere
                    keys = sorted(place) if isinstance(place, dict) else range(len(place))
                    key = data.draw(st.sampled_from(list(keys)))
                    if data.draw(st.booleans()) or not isinstance(place[key], (dict, list)):
                        place[key] = data.draw(JSON)
                        break
                    place = place[key]
                fine(client.post(path, json=body))


def test_times_of_a_project_are_no_keys_of_any_length(backend, studio):
    body = studio.created(1, studio.upload(png(12, 0)), "heron")
    body["project"]["created_at"] = CREATED_AT * 20
    problem(backend.post("/webhook", json=body), 422, "bad_value", "project.created_at")
