"""Correcting answers: naming photos, moving them, taking them out, and photos of no class."""

from __future__ import annotations

import cala
from app.clients import b64, form, png, problem, teach


def ids(client, label: int, numbers: range) -> list[dict]:
    found = client.post("/v1/predict", files=form(label, numbers)).json()["predictions"]
    return [{"id": one["id"]} for one in found]


def named(client, name: str, images: list[dict], key: str | None = None):
    headers = {"Idempotency-Key": key} if key else {}
    return client.post("/v1/photos", json={"name": name, "images": images}, headers=headers)


def row(client, name: str) -> dict:
    found = client.get("/v1/classes", params={"search": name}).json()["classes"]
    (one,) = [one for one in found if one["name"] == name]
    return client.get(f"/v1/classes/{one['id']}").json()


def test_a_photo_is_named(client, folder):
    images = ids(client, 12, range(3))
    taught = named(client, "heron", images, key="a")
    assert taught.status_code == 201
    assert (taught.json()["kind"], taught.json()["added"]) == ("new", 3)
    again = named(client, "heron", images, key="a")
    assert again.headers["idempotency-replayed"] == "true"
    more = named(client, "class 3", ids(client, 3, range(60, 61))).json()
    assert (more["kind"], more["photos"], more["added"]) == ("known", 9, 1)
    assert cala.load(folder).classes[-1] == "heron"
    sent = client.post("/v1/photos", data={"name": "heron"}, files=form(12, range(7, 8))).json()
    assert sent["photos"] == 4


def test_a_learned_photo_moves(client, folder):
    teach(client, "heron", 12, 3)
    moved = [{"id": row(client, "heron")["digests"][0]}]
    told = named(client, "egret", moved).json()
    assert (told["photos"], told["added"]) == (1, 1)
    assert row(client, "heron")["photos"] == 2
    assert row(client, "egret")["thumbnails"]
    named(client, "class 4", [{"id": one} for one in row(client, "heron")["digests"]])
    names = cala.load(folder).classes
    assert "heron" not in names
    assert "egret" in names
    assert row(client, "class 4")["photos"] == 10
    client.post("/v1/undo")
    assert row(client, "heron")["photos"] == 2


def test_a_photo_that_is_named_must_be_at_hand(client):
    problem(named(client, "heron", [{"id": "0" * 64}]), 410, "photo_gone")
    problem(named(client, "unknown", ids(client, 12, range(1))), 422, "bad_value", "name")


def test_two_classes_become_one(client, folder):
    teach(client, "heron", 12, 3)
    other = teach(client, "gray heron", 13, 2).json()["id"]
    into = row(client, "heron")["id"]
    told = client.post(f"/v1/classes/{other}/merge", json={"into": into})
    assert told.json()["classes"] == 13
    assert row(client, "heron")["photos"] == 5
    model = cala.load(folder)
    assert model.current.former == {"gray heron": "heron"}
    assert model.history()[-1]["action"] == "merge"
    problem(client.post(f"/v1/classes/{into}/merge", json={"into": into}), 422, "bad_value")
    gone = client.post(f"/v1/classes/{other}/merge", json={"into": into})
    problem(gone, 404, "no_such_class", "id")
    gone = client.post(f"/v1/classes/{into}/merge", json={"into": other})
    problem(gone, 404, "no_such_class", "into")


def test_one_photo_is_removed(client):
    teach(client, "heron", 12, 3)
    found = row(client, "heron")
    path = f"/v1/classes/{found['id']}/photos"
    assert client.delete(f"{path}/{found['digests'][1]}").status_code == 200
    left = row(client, "heron")["digests"]
    assert left == [found["digests"][0], found["digests"][2]]
    problem(client.delete(f"{path}/{found['digests'][1]}"), 422, "bad_value", "photo")


def test_photos_of_no_class(client, folder):
    told = client.post("/v1/reject", json={"images": ids(client, 30, range(4))}).json()
    assert (told["change"]["action"], told["change"]["photos"]) == ("reject", 4)
    assert len(cala.load(folder).classes) == 12


def test_an_estimate_names_doubtful_photos(client):
    odd = {"data": b64(png(5, 70))}
    images = [{"data": b64(png(12, n))} for n in range(4)]
    named(client, "heron", [*images, odd])
    told = client.get("/v1/estimate").json()
    assert told["photos"] == 12 * 8 + 5
    assert told["all"]["enough"]
    doubtful = {(one["label"], one["answer"]) for one in told["doubtful"]}
    assert ("heron", "class 5") in doubtful


def test_photos_that_look_alike(client):
    teach(client, "heron", 12, 3)
    files = form(12, range(100, 101))
    answer = client.post("/v1/predict?similar=2", files=files).json()["predictions"][0]
    assert [one["label"] for one in answer["similar"]] == ["heron", "heron"]
    digests = row(client, "heron")["digests"]
    assert {one["id"] for one in answer["similar"]} < set(digests)
    assert client.post("/v1/predict", files=files).json()["predictions"][0]["similar"] == []


def test_a_photo_that_was_just_sent_has_a_small_copy(client):
    (sent,) = ids(client, 3, range(80, 81))
    found = client.get(f"/v1/thumbnails/{sent['id']}")
    assert found.headers["content-type"] == "image/jpeg"
    problem(client.get(f"/v1/thumbnails/{'0' * 64}"), 404, "no_thumbnail")


def test_an_evaluation_names_its_photos(client):
    data = {"labels": ["class 3", "class 4"]}
    files = [*form(3, range(100, 101)), *form(5, range(101, 102))]
    told = client.post("/v1/evaluate", files=files, data=data).json()["trade_off"]
    assert told["image"] == ["100.png", "101.png"]
    assert client.get(f"/v1/thumbnails/{told['id'][1]}").status_code == 200


def test_it_learns_again_from_all_photos(client, folder):
    assert not client.get("/v1/model").json()["refit_pays"]
    for label in range(12, 25):
        teach(client, f"class {label}", label, 8)
    assert client.get("/v1/model").json()["refit_pays"]
    told = client.post("/v1/refit").json()
    assert (told["change"]["action"], told["classes"]) == ("refit", 25)
    model = client.get("/v1/model").json()
    assert (model["known"], model["refit_pays"]) == (25, False)
    assert client.get(f"/v1/classes/{row(client, 'class 20')['id']}").json()["kind"] == "known"
    client.post("/v1/undo")
    assert cala.load(folder).n_known == 12
