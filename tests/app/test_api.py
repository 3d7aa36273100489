"""Every endpoint does what it says."""

from __future__ import annotations

import io
import zipfile

import pytest

import cala
from app.clients import b64, client_of, form, png, problem, teach
from cala.store.store import UNDO_STEPS
from model.photos import write_photos


def test_predict_many(client):
    found = client.post("/v1/predict", files=form(3, range(100, 103)), params={"top": 2}).json()
    assert [p["label"] for p in found["predictions"]] == ["class 3"] * 3
    first = found["predictions"][0]
    assert first["image"] == "100.png"
    assert len(first["top"]) == 2
    assert first["top"][0]["probability"] == pytest.approx(first["probability"])
    assert {c["kind"] for c in first["closest"]} == {"known"}
    assert found["errors"] == []


def test_predictions_are_those_of_the_model(client, folder, photos):
    paths = sorted((photos / "test" / "class 5").iterdir())
    expected = cala.load(folder).explain(paths, top=5)
    files = [("images", (p.name, p.read_bytes(), "image/png")) for p in paths]
    found = client.post("/v1/predict", files=files).json()["predictions"]
    assert [p["label"] for p in found] == [p.label for p in expected]
    for one, other in zip(found, expected, strict=True):
        assert one["probability"] == pytest.approx(other.probability, abs=1e-5)


def test_predict_json_and_by_id(client):
    image = {"data": b64(png(2, 100)), "name": "../../etc/x.png"}
    first = client.post("/v1/predict", json={"images": [image]}).json()["predictions"][0]
    assert (first["label"], first["image"]) == ("class 2", "x.png")
    again = client.post("/v1/predict", json={"images": [{"id": first["id"]}]}).json()
    assert again["predictions"][0]["label"] == "class 2"


def test_some_photos_are_bad(client):
    files = [*form(1, range(100, 101)), ("images", ("a.jpg", b"no image", "image/jpeg"))]
    found = client.post("/v1/predict", files=files).json()
    assert len(found["predictions"]) == 1
    assert [(e["image"], e["code"], e["field"]) for e in found["errors"]] == [
        ("a.jpg", "bad_image", "images[1]")
    ]


def test_unknown(client):
    files = form(40, range(100, 103))
    answers = client.post("/v1/predict", files=files).json()["predictions"]
    off = client.post("/v1/predict", files=files, params={"unknown": "off"}).json()["predictions"]
    assert "unknown" in [a["label"] for a in answers]
    assert "unknown" not in [a["label"] for a in off]


def test_teach_extend_rename_forget_undo_redo(client):
    taught = teach(client, "kingfisher", 12)
    assert taught.status_code == 201
    body = taught.json()
    assert (body["name"], body["added"], body["kind"], body["version"]) == (
        "kingfisher",
        5,
        "new",
        2,
    )
    assert len(body["closest"]) == 3
    seen = client.post("/v1/predict", files=form(12, range(100, 103))).json()
    assert [p["best"] for p in seen["predictions"]] == ["kingfisher"] * 3
    row = client.get(f"/v1/classes/{body['id']}").json()
    assert (row["photos"], row["order"], row["beta"]) == (5, 12, pytest.approx(body["beta"]))
    assert len(row["thumbnails"]) == 5
    picture = client.get(f"/v1/thumbnails/{row['thumbnails'][0]}")
    assert picture.headers["content-type"] == "image/jpeg"

    path = f"/v1/classes/{body['id']}"
    more = client.post(f"{path}/shots", files=form(12, range(3, 7))).json()
    assert (more["added"], more["again"], more["photos"], more["id"]) == (2, 2, 7, body["id"])
    renamed = client.patch(path, json={"name": "common kingfisher"}).json()
    assert renamed["class"]["name"] == "common kingfisher"
    assert renamed["class"]["id"] == body["id"]
    assert client.delete(path).json()["classes"] == 12
    problem(client.get(path), 404, "no_such_class", "id")
    assert client.post("/v1/undo").json()["classes"] == 13
    assert client.get(path).json()["name"] == "common kingfisher"
    assert client.post("/v1/redo").json()["classes"] == 12
    changes = client.get("/v1/history", params={"limit": 2}).json()["changes"]
    assert [(c["action"], c["about"]["action"]) for c in changes] == [
        ("redo", "forget"),
        ("undo", "forget"),
    ]
    assert changes[0]["about"]["class"] == "common kingfisher"
    texts = [c["text"] for c in client.get("/v1/history").json()["changes"]]
    assert texts[:2] == ["redo: forget common kingfisher", "undo: forget common kingfisher"]
    assert texts[-2:] == ["add kingfisher (5 photos)", "fit 12 classes (96 photos)"]


def test_ids_are_not_given_again(client):
    first = teach(client, "a", 12).json()["id"]
    client.post("/v1/undo")
    second = teach(client, "b", 13).json()["id"]
    assert first != second
    problem(client.delete(f"/v1/classes/{first}"), 404, "no_such_class")


def test_ids_are_not_given_again_for_the_same_photos(client):
    first = teach(client, "a", 12).json()["id"]
    client.post("/v1/undo")
    second = teach(client, "b", 12).json()["id"]
    assert first != second
    assert client.get(f"/v1/classes/{second}").json()["name"] == "b"
    problem(client.delete(f"/v1/classes/{first}"), 404, "no_such_class")


def test_an_id_stays_whatever_is_added_removed_or_undone(client):
    one = teach(client, "a", 12).json()["id"]
    more = client.post(f"/v1/classes/{one}/shots", files=form(12, range(7)))  # five of them again
    assert more.json()["id"] == one
    first = client.get(f"/v1/classes/{one}").json()["digests"][0]
    assert client.delete(f"/v1/classes/{one}/photos/{first}").status_code == 200
    client.post("/v1/undo")
    assert client.get(f"/v1/classes/{one}").json()["name"] == "a"
    for number in range(UNDO_STEPS + 2):  # beyond what undo can reach
        renamed = client.patch(f"/v1/classes/{one}", json={"name": f"a {number}"})
        assert renamed.json()["class"]["id"] == one


def test_undo_only_what_was_seen(client):
    version = teach(client, "a", 12).json()["version"]
    teach(client, "b", 13)
    problem(client.post("/v1/undo", params={"version": version}), 409, "changed_meanwhile")
    assert client.post("/v1/undo", params={"version": version + 1}).status_code == 200
    client.post("/v1/undo")
    problem(client.post("/v1/undo"), 409, "not_possible_now")


def test_many_classes_are_searched_and_paged(client):
    found = client.get("/v1/classes", params={"search": "CLASS 1", "limit": 2}).json()
    assert (found["total"], found["found"]) == (12, 3)  # 1, 10, 11
    assert [c["name"] for c in found["classes"]] == ["class 1", "class 10"]
    newest = client.get("/v1/classes", params={"newest": True, "limit": 1}).json()
    assert newest["classes"][0]["name"] == "class 9"  # sorted as strings
    assert client.get("/v1/classes", params={"kind": "new"}).json()["found"] == 0


@pytest.mark.parametrize(
    "name",
    ["a/b", "..", "<img src=x onerror=alert(1)>", "🐦 Größe", "%2e%2e%2f", "a?b#c", "x" * 200],
)
def test_any_name(client, name):
    taught = teach(client, name, 12)
    assert taught.status_code == 201
    assert taught.json()["name"] == name
    path = f"/v1/classes/{taught.json()['id']}"
    assert client.get(path).json()["name"] == name
    assert client.delete(path).status_code == 200


def test_evaluate_files_json_and_zip(client, photos):
    teach(client, "class 12", 12)
    paths = sorted((photos / "test").rglob("*.png"))
    labels = [p.parent.name for p in paths]
    files = [("images", (p.name, p.read_bytes(), "image/png")) for p in paths]
    found = client.post("/v1/evaluate", files=files, data={"labels": labels}).json()
    assert (found["photos"], found["known"]["photos"], found["new"]["photos"]) == (39, 36, 3)
    assert found["accuracy"] > 0.8
    assert found["unknown"]["strange_photos"] == 12
    trade = found["trade_off"]
    delta = trade["delta"]
    right = [
        (new if switch < delta else known) == true
        for true, known, new, switch in zip(
            trade["true"], trade["known"], trade["new"], trade["switch"], strict=True
        )
        if true >= 0
    ]
    assert sum(right) / len(right) == pytest.approx(found["accuracy"])
    assert trade["label"] == labels
    own = [
        strange for strange, true in zip(trade["unknown"], trade["true"], strict=True) if true >= 0
    ]
    answered = sum(r and not strange for r, strange in zip(right, own, strict=True))
    assert answered / len(right) == pytest.approx(found["answered"])
    assert (sum(trade["unknown"]) - sum(own)) / 12 == pytest.approx(found["unknown"]["strange"])

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("test/README.txt", "about")
        written.writestr("__MACOSX/test/class 0/._1.png", b"x")
        for path in paths:
            written.write(path, f"test/{path.parent.name}/{path.name}")
    zipped = client.post("/v1/evaluate", files={"archive": ("a.zip", archive.getvalue())}).json()
    ids = [p["id"] for p in client.post("/v1/predict", files=files).json()["predictions"]]
    images = [{"id": i, "label": label} for i, label in zip(ids, labels, strict=True)]
    named = client.post("/v1/evaluate", json={"images": images}).json()
    for told in (zipped, found, named):
        assert len(told["trade_off"].pop("image")) == len(paths)
    assert zipped == found == named


def test_keep_an_operating_point(client, folder):
    teach(client, "class 12", 12)
    kept = client.patch("/v1/model", json={"delta": -3.5})
    assert kept.json()["change"]["delta"] == -3.5
    assert client.get("/v1/model").json()["settings"]["delta"] == -3.5
    assert cala.load(folder).current.classifier.delta_ == -3.5
    assert client.patch("/v1/model", json={"objective": "harmonic"}).status_code == 200
    problem(client.patch("/v1/model", json={}), 422, "bad_value")
    problem(client.patch("/v1/model", json={"delta": 1, "max_base_loss": 0.1}), 422, "bad_value")
    problem(client.patch("/v1/model", json={"reject": 2}), 422, "bad_value")


def test_model_health_metrics_docs(client):
    teach(client, "a", 12)
    model = client.get("/v1/model").json()
    assert (model["name"], model["classes"], model["new"], model["right"]) == (
        "birds",
        13,
        1,
        "teach",
    )
    assert (model["can_undo"], model["can_redo"]) == (True, False)
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}
    text = client.get("/metrics").text
    assert 'cala_requests_total{method="POST",route="/v1/classes",status="201"} 1.0' in text
    assert "cala_taught_photos_total 5.0" in text
    assert "cala_classes 13.0" in text
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/v1/predict", "/v1/classes/{id}/shots", "/v1/evaluate", "/metrics"} <= set(paths)
    assert "/static/docs.js" in client.get("/docs").text


def test_nothing_comes_from_another_host(client):
    for path in ("/", "/docs"):
        page = client.get(path)
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "http://" not in page.text.replace("http://127.0.0.1:8000", "").replace(
            "http://birds.example:8000", ""
        )
        assert "https://" not in page.text


def test_the_same_key_teaches_once(client, folder):
    first = teach(client, "a", 12, key="k1")
    again = teach(client, "a", 12, key="k1")
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    problem(teach(client, "a", 12, key="k1", start=1), 409, "key_reused", "Idempotency-Key")
    problem(teach(client, "b", 13, key="k1"), 409, "key_reused")
    client.post("/v1/undo")
    assert teach(client, "a", 12, key="k1").json() == first.json()
    with client_of(folder) as restarted:
        assert teach(restarted, "a", 12, key="k1").json() == first.json()
        problem(teach(restarted, "b", 13, key="k1"), 409, "key_reused")
        assert restarted.get("/v1/model").json()["classes"] == 12


def test_what_another_process_adds_is_seen(client, folder, tmp_path):
    cala.load(folder).add(write_photos(tmp_path / "new", range(12, 13), range(3)), "elsewhere")
    taught = teach(client, "here", 13).json()
    assert taught["version"] == 3
    assert client.get("/v1/model").json()["classes"] == 14


def test_other_changes_are_followed(client, folder, monkeypatch):
    cala.load(folder).rename("class 0", "else")
    service = client.app.state.service
    service._refresh()
    assert client.get("/v1/classes").json()["classes"][0]["name"] == "else"
    (folder / "model.json").write_text("{")
    service._refresh()
    problem(client.get("/readyz"), 503, "model_damaged")
    assert client.post("/v1/predict", files=form(1, range(2))).status_code == 200
