"""What attackers, damaged files and other processes did to the service once."""

from __future__ import annotations

import io
import socket
import struct
import tempfile
import threading
import zipfile

import numpy as np
import pytest
from PIL import Image

import cala
from app.clients import b64, client_of, form, png, problem, teach
from app.servers import serving
from app.test_first import first, send
from cala.app.decoders import DECODER_PROCESSES
from cala.data.decoding import ImageError, decode_bytes
from refusals import refused
from waiting import GENEROUS, wait_for


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
    with refused("scans", kind=ImageError, code="bomb"):
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


JSON = {"content-type": "application/json"}


def labelled(label: str) -> bytes:
    """JSON with one photo; halves of characters are escaped."""
    body = b'{"images": [{"data": "' + b64(png(1, 1)).encode() + b'", "label": "LABEL"}]}'
    return body.replace(b"LABEL", label.encode("ascii", "backslashreplace"))


def test_half_a_character_as_a_label(client):
    answer = client.post("/v1/evaluate", content=labelled("a\ud800"), headers=JSON)
    problem(answer, 422, "bad_value", "images[0].label")


def crowded(trick: str, entries: int = 40_000) -> bytes:
    """A zip file of many members whose end hides how long their list is."""
    one = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 0, 20, *[0] * 8, 1, *[0] * 6) + b"a"
    listed = one * entries
    if trick == "disk":  # looks like a second end record
        numbers = struct.pack("<HHLLH", entries & 0xFFFF, entries & 0xFFFF, len(listed), 0, 0)
        return listed + b"PK\5\6PK\5\6" + numbers
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, *[entries] * 2, len(listed), 0)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, len(listed), 1)
    return listed + record + locator + struct.pack("<4s4H2LH", b"PK\5\6", *[0] * 7)


@pytest.mark.parametrize("trick", ["disk", "zip64"])
def test_a_hidden_list_of_members_is_not_read(folder, monkeypatch, trick):
    reads = []
    real = tempfile.SpooledTemporaryFile.read

    def read(self, *size):
        reads.append(size[0] if size else -1)
        return real(self, *size)

    with client_of(folder, limits={"check": 10}) as client:
        monkeypatch.setattr(tempfile.SpooledTemporaryFile, "read", read)
        answer = client.post("/v1/evaluate", files={"archive": ("a.zip", crowded(trick))})
        problem(answer, 413, "too_many_files")
    assert max(reads) <= 1 << 17


def test_no_room_for_a_form(client, monkeypatch):
    def full(self, *data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "write", full)
    answer = client.post("/v1/predict", files=form(1, range(1)))
    problem(answer, 503, "no_space")


def test_mistakes_of_ours_are_sealed_too(client, monkeypatch):
    monkeypatch.setattr("cala.app.service.predictions", None)
    answer = client.post("/v1/predict", files=form(1, range(1)))
    problem(answer, 500, "internal")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_folder_that_cannot_be_written(client, monkeypatch):
    def refuse(self, *args, **named):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    problem(teach(client, "new", 20), 503, "not_saved")


@pytest.mark.parametrize("request_", ["teach", "predict", "evaluate"])
def test_a_large_request_leaves_others_their_turn(client, monkeypatch, request_):
    """A photo that is sent alone is decoded at once, though another request has many."""
    order, held, release = [], threading.Event(), threading.Event()
    real = DECODER_PROCESSES.decode

    def decode(data, name, *more):
        order.append(name)
        if name != "one.png" and len(order) > 1:  # the first of the large request is through
            held.set()
            release.wait(GENEROUS)
        return real(data, name, *more)

    monkeypatch.setattr(DECODER_PROCESSES, "decode", decode)
    many = form(20, range(40))
    asked = {
        "teach": lambda: client.post("/v1/classes", data={"name": "x"}, files=many),
        "predict": lambda: client.post("/v1/predict", files=many),
        "evaluate": lambda: client.post(
            "/v1/evaluate", data={"labels": ["class 1"] * 40}, files=many
        ),
    }[request_]
    asking = threading.Thread(target=asked)
    asking.start()
    try:
        assert held.wait(GENEROUS)
        one = {"images": ("one.png", png(1, 99))}
        assert client.post("/v1/predict", files=one).status_code == 200
        assert len(order) < 10
    finally:
        release.set()
        asking.join()


HEADS = {
    "no token": b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n",
    "no body wanted": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n",
    "wrong host": b"DELETE /x HTTP/1.1\r\nHost: evil\r\nContent-Length: 100\r\n\r\n",
    "chunks": b"POST /v1/undo HTTP/1.1\r\nHost: evil\r\nTransfer-Encoding: chunked\r\n\r\n",
}


@pytest.mark.system
@pytest.mark.parametrize("head", HEADS)
def test_a_connection_is_not_held_after_the_answer(folder, monkeypatch, head):
    """The rest of a request that was answered has to arrive, like its head."""
    monkeypatch.setattr("cala.app.connections.HEAD", 0.5)
    with serving(folder, token="t" * 20) as url:
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as line:
            line.sendall(HEADS[head])
            line.settimeout(GENEROUS)
            assert line.recv(4096).startswith(b"HTTP/1.1 ")
            line.sendall(b"1\r\n")  # a byte stops the server's own timer
            line.settimeout(10)
            while line.recv(4096):
                pass  # until the service closes it
        with socket.create_connection(("127.0.0.1", port)) as line:  # one that keeps its time
            line.sendall(HEADS["no body wanted"])
            line.settimeout(GENEROUS)
            while not line.recv(4096).endswith(b"}"):
                pass
            line.sendall(bytes(100) + HEADS["no body wanted"].replace(b"100", b"0"))
            assert line.recv(4096).startswith(b"HTTP/1.1 200")


def test_labels_of_a_first_model(tmp_path):
    with first(tmp_path / "new") as client:
        long = {"images": [{"data": b64(png(1, 1)), "label": "x" * 500}]}
        found = client.post("/v1/start/photos", json=long)
        assert found.status_code == 200
        assert found.json()["errors"][0]["field"] == "labels"
        assert found.json()["photos"] == 0
        half = labelled("a\ud800")
        found = client.post("/v1/start/photos", content=half, headers=JSON)
        problem(found, 422, "bad_value", "images[0].label")
        assert client.get("/v1/start").json()["photos"] == 0
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
