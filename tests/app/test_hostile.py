"""What attackers, damaged files and other processes did to the service once."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
from PIL import Image

import cala
from app.clients import b64, client_of, form, png, problem, teach
from app.test_first import first, send
from cala.data.decoding import ImageError, decode_bytes
from waiting import wait_for


def with_scans(scans: int) -> bytes:
    """A progressive JPEG whose last scan is there many times."""
    written = io.BytesIO()
    Image.new("L", (64, 64), 90).save(written, "JPEG", progressive=True)
    data = written.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * scans + data[-2:]


def test_a_jpeg_of_many_scans(client):
    answer = client.post("/v1/predict", files={"images": ("a.jpg", with_scans(200))})
    assert "scans" in problem(answer, 422, "bad_image", "images[0]")["detail"]
    fine = client.post("/v1/predict", files={"images": ("a.jpg", with_scans(1))})
    assert fine.status_code == 200
    with pytest.raises(ImageError, match="scans"):
        decode_bytes(with_scans(200), "a")


def test_sixteen_bits_are_scaled_in_strips(monkeypatch):
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    written = io.BytesIO()
    Image.fromarray(values).save(written, "PNG")
    whole = decode_bytes(written.getvalue(), "a")
    monkeypatch.setattr("cala.data.decoding.STRIP", 1000)
    assert (decode_bytes(written.getvalue(), "a") == whole).all()
    assert (whole[..., 0] == np.round(values / 257)).all()


def ids(client) -> dict[str, str]:
    return {row["name"]: row["id"] for row in client.get("/v1/classes").json()["classes"]}


def test_an_id_is_one_class_whatever_other_processes_do(client, folder, monkeypatch):
    monkeypatch.setattr("cala.app.service.POLL", 3600)
    before = ids(client)
    other = cala.load(folder)
    other.rename("class 1", "c").rename("class 2", "class 1")
    assert client.delete(f"/v1/classes/{before['class 1']}").status_code == 200
    assert {"class 1"} <= set(ids(client))
    assert "c" not in ids(client)
    other.reload().rename("class 3", "d")
    more = client.post(f"/v1/classes/{before['class 3']}/shots", files=form(3, range(50, 52)))
    assert (more.status_code, more.json()["name"]) == (201, "d")
    other.reload().forget("d")
    gone = client.post(f"/v1/classes/{before['class 3']}/shots", files=form(3, range(60, 62)))
    problem(gone, 404, "no_such_class", "id")
    assert "d" not in ids(client)


def test_undo_is_of_the_version_that_was_seen(client, folder, monkeypatch):
    monkeypatch.setattr("cala.app.service.POLL", 3600)
    version = teach(client, "new", 20).json()["version"]
    cala.load(folder).rename("class 1", "other")
    problem(client.post(f"/v1/undo?version={version}"), 409, "changed_meanwhile", "version")
    assert "other" in ids(client)


def test_a_key_is_remembered_beyond_photos_and_restarts(folder):
    key = {"Idempotency-Key": "k"}
    with client_of(folder) as client:
        seen = client.post("/v1/predict", files=form(20, range(3))).json()["predictions"]
        asked = {"name": "K", "images": [{"id": one["id"]} for one in seen]}
        taught = client.post("/v1/classes", json=asked, headers=key)
        assert taught.status_code == 201
    with client_of(folder) as client:  # which has never seen these photos
        again = client.post("/v1/classes", json=asked, headers=key)
        assert (again.status_code, again.json()) == (201, taught.json())
        assert again.headers["idempotency-replayed"] == "true"


def test_a_model_that_is_gone_is_the_services_fault(folder):
    with client_of(folder) as client:
        folder.rename(folder.with_name("elsewhere"))
        problem(teach(client, "new", 20), 503, "model_damaged")
        wait_for(lambda: client.get("/readyz").status_code != 200)
        answer = client.get("/readyz")
        problem(answer, 503, "model_damaged")
        assert str(folder.parent) not in answer.text
        folder.with_name("elsewhere").rename(folder)
        assert teach(client, "new", 20).status_code == 201
        assert client.get("/readyz").status_code == 200


def test_paths_of_the_machine_are_not_told(client, folder):
    answer = client.post("/v1/undo")
    problem(answer, 409, "not_possible_now")
    assert str(folder.parent) not in answer.text


@pytest.mark.parametrize("origin", ["http://[", "http://a]b", "null", "http://127.0.0.1:1"])
def test_odd_origins(client, origin):
    problem(client.post("/v1/undo", headers={"origin": origin}), 403, "cross_origin")


@pytest.mark.parametrize("host", ["[::1].evil.example", "127.0.0.1:99:evil", "[::1", "evil"])
def test_odd_hosts(client, host):
    problem(client.get("/v1/model", headers={"host": host}), 421, "wrong_host")


def test_damaged_members_and_forms(client):
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("class 1/a.png", png(1, 1) * 50)
    data = bytearray(written.getvalue())
    for at in range(60, 110):
        data[at] ^= 0x55
    answer = client.post("/v1/evaluate", files={"archive": ("a.zip", bytes(data))})
    problem(answer, 422, "bad_archive", "archive")
    kind = {"content-type": "multipart/form-data; charset=undefined; boundary=B"}
    body = b'--B\r\nContent-Disposition: form-data; name="x"\r\n\r\ny\r\n--B--\r\n'
    answer = client.post("/v1/predict", content=body, headers=kind)
    assert answer.status_code in (400, 422)


def test_a_list_of_members_that_is_too_long(folder):
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for number in range(300):
            archive.writestr(f"{number:0100}", b"")
    with client_of(folder, limits={"check": 10}) as client:
        answer = client.post("/v1/evaluate", files={"archive": ("a.zip", written.getvalue())})
        problem(answer, 413, "too_many_files")


def test_json_of_too_many_values(client):
    kind = {"content-type": "application/json"}
    body = b'{"images": [' + b"{}," * 100_000 + b"{}]}"
    problem(client.post("/v1/predict", content=body, headers=kind), 422, "bad_value", "body")


def test_json_is_never_as_large_as_an_archive(folder):
    with client_of(folder, limits={"body": 10_000}) as client:
        large = {"images": [{"data": "A" * 20_000, "label": "class 1"}]}
        problem(client.post("/v1/evaluate", json=large), 413, "too_large", "body")


def test_json_that_is_not_called_json(client):
    answer = client.patch("/v1/model", content=b'{"reject": 0.1}', headers={"content-type": "a/b"})
    problem(answer, 415, "wrong_media_type", "Content-Type")


def test_labels_of_a_first_model(tmp_path):
    with first(tmp_path / "new") as client:
        for label in ("a\ud800", "x" * 500):
            body = b'{"images": [{"data": "' + b64(png(1, 1)).encode() + b'", "label": "LABEL"}]}'
            body = body.replace(b"LABEL", label.encode("ascii", "backslashreplace"))
            kind = {"content-type": "application/json"}
            found = client.post("/v1/start/photos", content=body, headers=kind)
            assert found.status_code == 200
            assert found.json()["errors"][0]["field"] == "labels"
            assert found.json()["photos"] == 0
        known = {"images": [{"id": "0" * 64, "label": "a"}]}
        assert (
            client.post("/v1/start/photos", json=known).json()["errors"][0]["code"] == "photo_gone"
        )
        strange = {"foo": "x", "images": [{"data": b64(png(1, 1)), "label": "a"}]}
        problem(client.post("/v1/start/photos", json=strange), 422, "bad_value", "foo")
        problem(client.post("/v1/start"), 422, "too_few_classes")
        send(client, 1, 2)
        problem(client.post("/v1/start"), 422, "too_few_classes")
        problem(client.get("/metrics"), 503, "no_model")
