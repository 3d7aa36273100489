"""What is refused, and how."""

from __future__ import annotations

import asyncio
import io
import logging
import socket
import zipfile
import zlib
from dataclasses import replace

import pytest

from app.clients import b64, client_of, form, png, problem, teach
from app.servers import serving
from cala.app.middleware import BodyLimit
from cala.app.problems import Problem
from cala.app.settings import Limits, Settings
from cala.errors import InputError
from waiting import GENEROUS

TOKEN, READ = "t" * 20, "r" * 20


def test_bad_photos(client):
    def sent(data: bytes):
        return client.post("/v1/predict", files={"images": ("a.jpg", data)})

    problem(sent(b""), 422, "bad_image", "images[0]")
    problem(sent(b"no image"), 422, "bad_image", "images[0]")
    problem(sent(png(1, 1)[:60]), 422, "bad_image", "images[0]")
    problem(client.post("/v1/predict", files={"other": png(1, 1)}), 422, "bad_value", "other")
    problem(client.post("/v1/predict", json={}), 422, "bad_value", "images")
    problem(client.post("/v1/predict", content=b"x"), 415, "wrong_media_type", "Content-Type")
    problem(client.post("/v1/predict", data={"x": "y"}, files=form(1, range(1))), 422, "bad_value")
    bad = client.post(
        "/v1/predict", content=b"x", headers={"content-type": "multipart/form-data; boundary=a"}
    )
    problem(bad, 400, "bad_request", "body")


def test_text_of_a_form_is_not_guessed(client, folder):
    before = (folder / "model.json").read_bytes()
    head = b'--a\r\nContent-Disposition: form-data; name="'
    photo = head + b'images"; filename="M\xfcller.png"\r\n\r\n' + png(12, 1) + b"\r\n--a--\r\n"
    kind = {"content-type": "multipart/form-data; boundary=a"}
    odd = head + b'name"\r\n\r\nM\xfcller\r\n' + photo
    problem(client.post("/v1/classes", content=odd, headers=kind), 422, "bad_value", "name")
    odd = head + b'labels"\r\n\r\nM\xfcller\r\n' + photo
    problem(client.post("/v1/evaluate", content=odd, headers=kind), 422, "bad_value", "labels")
    assert (folder / "model.json").read_bytes() == before
    good = head + b'name"\r\n\r\nM\xc3\xbcller\r\n' + photo  # names of files are for messages alone
    assert client.post("/v1/classes", content=good, headers=kind).json()["name"] == "Müller"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ([], "body"),
        ({"images": {}}, "images"),
        ({"images": [1]}, "images[0]"),
        ({"images": [{}]}, "images[0]"),
        ({"images": [{"data": "x", "id": "0" * 64}]}, "images[0]"),
        ({"images": [{"data": "§"}]}, "images[0].data"),
        ({"images": [{"id": "../x"}]}, "images[0].id"),
        ({"images": []}, "images"),
        ({"images": [{"data": ""}], "name": 3}, "name"),
    ],
)
def test_bad_json(client, body, field):
    problem(client.post("/v1/predict", json=body), 422, "bad_value", field)


def test_json_that_is_none(client):
    for text in (b"{", b"\xff", b"[" * 100_000):
        answer = client.post(
            "/v1/predict", content=text, headers={"content-type": "application/json"}
        )
        problem(answer, 422, "bad_value", "body")


def test_a_photo_that_was_never_sent(client):
    problem(client.post("/v1/predict", json={"images": [{"id": "0" * 64}]}), 410, "photo_gone")


def test_bad_teaching_changes_nothing(client, folder):
    before = (folder / "model.json").read_bytes()
    problem(teach(client, "class 3", 12), 409, "class_exists", "name")
    for name in ("", " ", "unknown", "\0", "x" * 201):
        problem(teach(client, name, 12), 422, "bad_value")
    problem(client.post("/v1/classes", files=form(12, range(2))), 422, "bad_value", "name")
    problem(client.post("/v1/classes", json={"name": "a"}), 422, "bad_value", "images")
    files = [*form(12, range(2)), ("images", ("x.png", b"bad"))]
    answer = client.post("/v1/classes", data={"name": "a"}, files=files)
    problem(answer, 422, "bad_image", "images[2]")
    known = {"images": ("k.png", png(0, 0))}
    problem(client.post("/v1/classes", data={"name": "a"}, files=known), 422, "bad_value", "images")
    problem(teach(client, "a", 12, key=" " * 300), 422, "bad_value", "Idempotency-Key")
    lone = b'{"name": "\\ud800", "images": [{"data": ""}]}'
    answer = client.post("/v1/classes", content=lone, headers={"content-type": "application/json"})
    problem(answer, 422, "bad_value", "name")
    problem(client.post("/v1/classes/99-ab/shots", files=form(12, range(2))), 404, "no_such_class")
    first = client.get("/v1/classes").json()["classes"][0]["id"]
    problem(client.patch(f"/v1/classes/{first}", json={"name": "class 1"}), 409, "class_exists")
    problem(client.patch(f"/v1/classes/{first}", json={"name": ""}), 422, "bad_value")
    problem(client.patch(f"/v1/classes/{first}", json={"nom": ""}), 422, "bad_value", "name")
    assert (folder / "model.json").read_bytes() == before


def test_two_classes_must_remain(client):
    for row in client.get("/v1/classes").json()["classes"][:10]:
        assert client.delete(f"/v1/classes/{row['id']}").status_code == 200
    last = client.get("/v1/classes").json()["classes"][0]["id"]
    problem(client.delete(f"/v1/classes/{last}"), 422, "bad_value")


@pytest.mark.parametrize(
    "path", ["/v1/nothing", "/static/../routes.py", "/static/%2e%2e/routes.py", "/v1/classes/../x"]
)
def test_no_such_path(client, path):
    assert client.get(path).status_code == 404


@pytest.mark.parametrize("digest", ["0" * 64, "..%2f..%2fmodel.json", "model.json", "A" * 64])
def test_thumbnails_are_only_those(client, digest):
    assert client.get(f"/v1/thumbnails/{digest}").status_code == 404


def test_limits(folder):
    limits = {"body": 20_000, "file": 5_000, "pixels": 200, "predict": 3, "teach": 2}
    with client_of(folder, limits=limits) as client:
        problem(client.post("/v1/predict", files=form(1, range(4))), 413, "too_many_files")
        problem(client.post("/v1/predict", files=form(1, range(8))), 413, "too_many_files")
        images = [{"data": b64(png(1, n))} for n in range(4)]
        problem(client.post("/v1/predict", json={"images": images}), 413, "too_many_files")
        problem(teach(client, "a", 12, count=3), 413, "too_many_files")
        large = {"images": ("a.png", b"x" * 6_000)}
        problem(client.post("/v1/predict", files=large), 413, "file_too_large", "images[0]")
        answer = client.post("/v1/predict", json={"images": [{"data": "A" * 8_000}]})
        problem(answer, 413, "file_too_large", "images[0]")
        larger = {"images": ("a.png", b"x" * 30_000)}
        problem(client.post("/v1/predict", files=larger), 413, "too_large", "body")
        chunks = (b"x" * 1000 for _ in range(100))
        answer = client.post(
            "/v1/predict", content=chunks, headers={"content-type": "application/json"}
        )
        problem(answer, 413, "too_large", "body")
        many = {"images": ("a.png", png(1, 1, side=20))}
        body = problem(client.post("/v1/predict", files=many), 422, "bad_image", "images[0]")
        assert "20×20 pixels" in body["detail"]
        wide = client.patch("/v1/model", content=b'{"reject": "' + b"x" * 30_000 + b'"}')
        problem(wide, 413, "too_large")


def chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data).to_bytes(4, "big")
    return len(data).to_bytes(4, "big") + kind + data + check


@pytest.mark.parametrize("side", [8_000, 60_000])
def test_a_decompression_bomb(client, side):
    """A PNG of a few bytes that says how wide and high it is."""
    sides = side.to_bytes(4, "big") * 2
    data = chunk(b"IHDR", sides + b"\x08\x02\x00\x00\x00") + chunk(b"IDAT", zlib.compress(b"0"))
    bomb = b"\x89PNG\r\n\x1a\n" + data + chunk(b"IEND", b"")
    answer = client.post("/v1/predict", files={"images": ("b.png", bomb)})
    assert "pixels" in problem(answer, 422, "bad_image", "images[0]")["detail"]


def packed(members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", kind) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return written.getvalue()


@pytest.mark.parametrize(
    "name",
    ["../a/1.png", "/a/1.png", "a/../../b/1.png", "C:/a/1.png", "a\\..\\1.png", "1.png", "a/1.txt"],
)
def test_archives_with_tricks(client, name, tmp_path):
    data = packed({name: png(1, 1)})
    problem(client.post("/v1/evaluate", files={"archive": ("a.zip", data)}), 422, "bad_archive")


def test_bad_archives(folder):
    with client_of(folder, limits={"unpacked": 100_000, "file": 50_000, "check": 5}) as client:

        def refused(data: bytes, code: str = "bad_archive", status: int = 422):
            return problem(
                client.post("/v1/evaluate", files={"archive": ("a.zip", data)}), status, code
            )

        refused(b"no zip")
        refused(packed({"a/1.png": png(1, 1)})[:-30])
        refused(packed({"a/1.png": bytes(60_000)}))  # unpacks to more than a photo may be
        refused(packed({f"a/{n}.png": bytes(40_000) for n in range(4)}))
        refused(packed({f"a/{n}.png": b"x" for n in range(6)}), "too_many_files", 413)
        refused(packed({f"a/{n}/": b"" for n in range(60)}), "too_many_files", 413)
        refused(lying(60_000))
        refused(packed({"a/1.png": b"no image"}), "bad_image")
        both = [("archive", ("a.zip", packed({"a/1.png": png(1, 1)}))), *form(1, range(1))]
        problem(client.post("/v1/evaluate", files=both), 422, "bad_value", "archive")


def lying(size: int) -> bytes:
    """An archive whose member says that it is small."""
    data = packed({"a/1.png": bytes(size)})
    honest = size.to_bytes(4, "little")
    assert data.count(honest) == 2
    return data.replace(honest, (1000).to_bytes(4, "little"))


def test_unlabelled_photos_cannot_be_judged(client):
    problem(client.post("/v1/evaluate", files=form(1, range(2))), 422, "bad_value")
    answer = client.post("/v1/evaluate", files=form(1, range(2)), data={"labels": ["a"]})
    problem(answer, 422, "bad_value", "labels")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_other_origins(client, headers):
    problem(client.post("/v1/undo", headers=headers), 403, "cross_origin", "Origin")
    answer = client.post("/v1/predict", files=form(1, range(1)), headers=headers)
    problem(answer, 403, "cross_origin")


def test_the_own_origin(client):
    own = {"origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-origin"}
    assert client.post("/v1/predict", files=form(1, range(1)), headers=own).status_code == 200


def test_dns_rebinding(client):
    for host in ("evil.example", "evil.example:8000", "", "127.0.0.1.evil.example"):
        answer = client.get("/v1/model", headers={"host": host})
        problem(answer, 421, "wrong_host", "Host")
    for host in ("localhost:8000", "[::1]:8000", "127.0.0.1"):
        assert client.get("/v1/model", headers={"host": host}).status_code == 200


def test_tokens_and_rights(folder, caplog):
    caplog.set_level(logging.DEBUG)
    with client_of(folder, host="0.0.0.0", token=TOKEN, read_token=READ) as client:
        problem(client.get("/v1/model"), 401, "token_needed", "Authorization")
        for wrong in ("Bearer x", f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x", "Bearer ü"):
            answer = client.get("/v1/model", headers={"authorization": wrong.encode()})
            problem(answer, 401, "token_needed")
        problem(client.get("/metrics"), 401, "token_needed")
        for path in ("/", "/docs", "/healthz", "/readyz", "/static/main.js"):
            assert client.get(path).status_code == 200
        client.headers["authorization"] = f"Bearer {READ}"
        assert client.get("/v1/model").json()["right"] == "read"
        assert client.post("/v1/predict", files=form(1, range(1))).status_code == 200
        problem(teach(client, "a", 12), 403, "read_only")
        first = client.get("/v1/classes").json()["classes"][0]["id"]
        for method, path in (
            ("POST", f"/v1/classes/{first}/shots"),
            ("PATCH", f"/v1/classes/{first}"),
            ("DELETE", f"/v1/classes/{first}"),
            ("PATCH", "/v1/model"),
            ("POST", "/v1/undo"),
            ("POST", "/v1/redo"),
        ):
            problem(client.request(method, path), 403, "read_only")
        client.headers["authorization"] = f"Bearer {TOKEN}"
        assert teach(client, "a", 12).status_code == 201
    assert TOKEN not in caplog.text
    assert READ not in caplog.text
    assert TOKEN not in repr(Settings(host="0.0.0.0", token=TOKEN))


@pytest.mark.parametrize(
    "settings",
    [
        {"host": "0.0.0.0"},
        {"host": "192.168.1.2"},
        {"host": "birds.example"},
        {"token": "short"},
        {"read_token": READ},
        {"token": TOKEN, "read_token": TOKEN},
    ],
)
def test_settings_that_are_not_safe(settings):
    with pytest.raises(InputError) as refused:
        Settings(**settings)
    assert refused.value.field in ("token", "read_token")


def test_busy(folder):
    with client_of(folder) as client:
        client.app.state.service.encoder.waiting = 10_000
        answer = client.post("/v1/predict", files=form(1, range(1)))
        problem(answer, 503, "busy")
        assert answer.headers["retry-after"] == "1"


def test_photos_that_take_too_long(folder):
    with client_of(folder, limits={"seconds": 0.0}) as client:
        problem(client.post("/v1/predict", files=form(1, range(1))), 503, "busy")


def test_a_body_that_does_not_come(folder):
    with client_of(folder, limits={"idle": 0.0}) as client:
        kind = {"content-type": "application/json"}
        answer = client.post("/v1/predict", content=b"{}", headers=kind)
        problem(answer, 408, "too_slow", "body")


def test_mistakes_of_ours_say_nothing(client, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("secret detail")

    monkeypatch.setattr("cala.app.service.predictions", broken)
    answer = client.post("/v1/predict", files=form(1, range(1)))
    body = problem(answer, 500, "internal")
    assert "secret" not in answer.text
    assert body["fix"]


def test_deflate_that_never_ends(client):
    """A request that claims to be compressed is taken as the bytes that it is."""
    data = zlib.compress(b"0" * 1_000_000)
    answer = client.post(
        "/v1/predict",
        content=data,
        headers={"content-type": "application/json", "content-encoding": "deflate"},
    )
    problem(answer, 422, "bad_value", "body")


@pytest.mark.system
def test_a_head_that_does_not_end(folder, monkeypatch):
    monkeypatch.setattr("cala.app.connections.HEAD", 0.3)
    with serving(folder) as url:
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as line:
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")
            line.settimeout(GENEROUS)
            assert line.recv(100) == b""  # closed by the service
        with socket.create_connection(("127.0.0.1", port)) as line:  # one that keeps its time
            for _ in range(2):
                line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                answer = b""
                while not answer.endswith(b"}"):
                    answer += line.recv(4096)
                assert b"200" in answer


def test_all_requests_together_bring_too_much():
    limits = replace(Limits(), body=100, together=150)

    async def app(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        read.append(scope["name"])
        arrived.set()
        await go.wait()

    async def ask(name: str) -> None:
        body = {"type": "http.request", "body": bytes(90), "more_body": False}
        scope = {"type": "http", "path": "/v1/predict", "headers": [], "name": name}
        await guarded(scope, lambda: asyncio.sleep(0, body), None)

    async def both() -> None:
        first = asyncio.create_task(ask("first"))
        await arrived.wait()
        with pytest.raises(Problem) as refused:
            await ask("second")
        assert refused.value.code == "busy"
        go.set()
        await first
        await ask("third")

    guarded, read = BodyLimit(app, limits), []
    go, arrived = asyncio.Event(), asyncio.Event()
    asyncio.run(both())
    assert read == ["first", "third"]
    assert guarded.held == 0
