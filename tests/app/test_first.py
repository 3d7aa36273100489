"""The service before there is a model."""

from __future__ import annotations

import io
import tempfile
import zipfile
from contextlib import contextmanager
from dataclasses import replace

import pytest
from starlette.testclient import TestClient

import cala
from app.clients import HOST, form, png, problem
from cala.app.server import run_setup
from cala.app.settings import Limits, Settings
from cala.app.setup import SetupApp
from cala.errors import InputError
from model.photos import ENCODER
from refusals import refused
from waiting import wait_for


@contextmanager
def first(path, limits: dict | None = None, **settings):
    chosen = Settings(**settings, limits=replace(Limits(), **(limits or {})))
    app = SetupApp(path, chosen, ENCODER)
    with TestClient(app, base_url=HOST, raise_server_exceptions=False) as opened:
        yield opened


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "birds"


def send(client, label: int, count: int, name: str | None = None):
    data = {"labels": [name or f"class {label}"] * count}
    return client.post("/v1/start/photos", files=form(label, range(count)), data=data)


def learned(client) -> dict:
    assert client.post("/v1/start").status_code == 202
    wait_for(lambda: client.get("/v1/start").json()["state"] != "learning")
    return client.get("/v1/start").json()


def test_from_nothing_to_a_class_that_is_taught(path):
    with first(path) as client:
        assert "<main" in client.get("/").text
        assert client.get("/healthz").status_code == 200
        problem(client.get("/readyz"), 503, "no_model")
        problem(client.get("/v1/model"), 503, "no_model")
        problem(client.post("/v1/classes", files=form(1, range(1))), 503, "no_model")
        for label in range(6):
            assert send(client, label, 4).json()["errors"] == []
        said = client.get("/v1/start").json()
        assert (said["photos"], said["classes"]["class 3"], said["state"]) == (24, 4, "collecting")
        assert learned(client)["state"] == "ready"
        assert client.get("/readyz").status_code == 200
        assert client.get("/v1/model").json()["known"] == 6
        taught = client.post("/v1/classes", data={"name": "new"}, files=form(12, range(5)))
        assert taught.status_code == 201
        found = client.post("/v1/predict?unknown=off", files=form(12, range(90, 91))).json()
        assert found["predictions"][0]["best"] == "new"
        assert client.get("/v1/classes").json()["classes"][0]["thumbnails"]
    assert cala.load(path).classes == [*(f"class {n}" for n in range(6)), "new"]


def test_an_archive(path):
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for label in range(5):
            for number in range(3):
                archive.writestr(f"all/class {label}/{number}.png", png(label, number))
        archive.writestr("all/class 1/broken.png", b"no photo")
    with first(path) as client:
        found = client.post("/v1/start/photos", files={"archive": ("a.zip", written.getvalue())})
        assert found.json()["photos"] == 15
        (bad,) = found.json()["errors"]
        assert "broken.png" in bad["image"]
        assert bad["code"] == "bad_image"
        learned(client)
        assert client.get("/v1/model").json()["classes"] == 5


def test_what_cannot_be_used_is_said(path):
    with first(path, limits={"check": 5}) as client:
        problem(client.post("/v1/start/photos", files=form(1, range(1))), 422, "bad_value")
        problem(client.post("/v1/start/photos", files={}), 415, "wrong_media_type")
        bad = send(client, 1, 1, "unknown").json()["errors"][0]
        assert (bad["code"], bad["field"]) == ("bad_value", "labels")
        send(client, 1, 2)
        problem(client.post("/v1/start"), 422, "too_few_classes")
        same = client.post(
            "/v1/start/photos", files=form(1, range(2)), data={"labels": ["class 2"] * 2}
        )
        assert same.status_code == 200
        failed = learned(client)  # the same photos under two names
        assert failed["error"]["code"] == "bad_value"
        assert send(client, 2, 1).json()["error"] is None
        problem(send(client, 3, 1), 413, "too_many_files")
        emptied = client.delete("/v1/start/photos").json()
        assert (emptied["photos"], emptied["error"]) == (0, None)
    assert not path.exists()


def test_tokens_count_from_the_start(path):
    token, read = "t" * 20, "r" * 20
    with first(path, token=token, read_token=read) as client:
        assert client.get("/v1/start").status_code == 401
        client.headers["authorization"] = f"Bearer {read}"
        assert client.get("/v1/start").json()["right"] == "read"
        problem(send(client, 1, 1), 403, "read_only")
        problem(client.post("/v1/start"), 403, "read_only")
        client.headers["authorization"] = f"Bearer {token}"
        assert send(client, 1, 1).status_code == 200
        foreign = {"origin": "https://elsewhere.example"}
        problem(client.post("/v1/start", headers=foreign), 403, "cross_origin")


def test_it_is_shared_from_the_start(path):
    token, read = "t" * 20, "r" * 20
    with first(path, token=token, read_token=read, share=True) as client:
        client.headers["authorization"] = f"Bearer {token}"
        assert client.get("/v1/start").json()["share"].endswith(":8000")
        client.headers["authorization"] = f"Bearer {read}"
        assert client.get("/v1/start").json()["share"] is None


def test_an_accepted_model_is_finished(path):
    with first(path) as client:
        for label in range(5):
            send(client, label, 3)
        assert client.post("/v1/start").status_code == 202
        problem(send(client, 7, 1), 409, "learning")
    assert len(cala.load(path).classes) == 5


def test_places_where_no_model_can_be(tmp_path):
    with pytest.raises(InputError) as caught:
        run_setup(tmp_path / "a" / "b", Settings(), 0, print)
    assert caught.value.field == "model"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(InputError) as caught:
        run_setup(tmp_path / "full", Settings(), 0, print)
    assert caught.value.code == "not_empty"
    with refused("'no-such'", field="encoder", code="unknown_name"):
        run_setup(tmp_path / "new", Settings(), 0, print, encoder="no-such")


def test_photos_that_were_dropped_while_it_was_started(path):
    """What was queued before the start counts: nothing is left to learn from."""
    import threading

    with first(path) as client:
        for label in range(3):
            send(client, label, 2)
        job, busy, go = client.app.job, threading.Event(), threading.Event()
        job._worker.submit(lambda: (busy.set(), go.wait()))
        busy.wait()
        dropped = threading.Thread(target=lambda: client.delete("/v1/start/photos"))
        dropped.start()
        wait_for(lambda: job._worker._work_queue.qsize())
        assert client.post("/v1/start").status_code == 202
        go.set()
        dropped.join()
        wait_for(lambda: client.get("/v1/start").json()["state"] != "learning")
        assert client.get("/v1/start").json()["error"]["code"] == "too_few_classes"
    assert not path.exists()


def test_a_sample_and_its_pictures(path):
    with first(path) as client:
        listed = client.get("/v1/samples").json()["samples"]
        send(client, 1, 2)
        problem(client.post("/v1/start/sample"), 409, "conflict", "photos")
        assert client.get("/v1/start").json()["photos"] == 2  # nothing of one's own is lost
        client.delete("/v1/start/photos")
        assert client.post("/v1/start/sample").status_code == 202
        wait_for(lambda: client.get("/v1/start").json()["state"] != "learning")
        assert client.get("/v1/start").json()["state"] == "ready"
        assert client.get("/v1/model").json()["sample"]
        stranger = {one["label"] for one in listed} - set(cala.load(path).classes)
        assert len(stranger) == 1
        picture = client.get(listed[0]["url"])
        assert picture.headers["content-type"] == "image/jpeg"
        problem(client.get("/v1/samples/apple/99"), 404, "not_found")
    assert len(cala.load(path).classes) == 4


def test_one_class_is_taken_back(path):
    with first(path) as client:
        for label in range(3):
            send(client, label, 2)
        left = client.delete("/v1/start/photos", params={"label": "class 1"}).json()
        assert left["classes"] == {"class 0": 2, "class 2": 2}
        assert send(client, 4, 2).json()["photos"] == 6
        assert learned(client)["state"] == "ready"
    assert cala.load(path).classes == ["class 0", "class 2", "class 4"]


def test_photos_of_killed_services_go_with_the_next_start(path, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, other = tmp_path / "cala-photos-dead", tmp_path / "cala-photos-of-another-program"
    for folder in (dead, other):
        folder.mkdir()
        (folder / "000001").write_bytes(b"a photo")
    (dead / ".lock").touch()
    with first(path) as running:
        assert not dead.exists()
        assert other.exists()
        send(running, 1, 2)
        with first(path.with_name("second")):  # the photos of one that lives stay
            kept = [f for f in tmp_path.glob("cala-photos-*/*") if f.name != ".lock"]
            assert len(kept) > 1
    assert not [f for f in tmp_path.glob("cala-photos-*") if f != other]
