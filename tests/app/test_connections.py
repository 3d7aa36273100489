"""Connections have ends, and a flood of them leaves room for others."""

from __future__ import annotations

import logging
import select
import socket
import threading

import httpx
import pytest

from app.clients import client_of, form, problem
from app.servers import serving, start
from app.test_hostile import HEADS
from cala.app.connections import OncePerSecond, most_connections
from waiting import GENEROUS, wait_for

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connected(url: str) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
    line.settimeout(GENEROUS)
    return line


def is_open(line: socket.socket) -> bool:
    line.setblocking(False)
    try:
        while line.recv(65536):
            pass
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False


@pytest.mark.system
@pytest.mark.parametrize("sent", [b"", HEALTH, HEADS["no token"], b"GET /heal"])
def test_idle_connections_make_room(folder, monkeypatch, sent):
    monkeypatch.setattr("cala.app.connections.CONNECTIONS", 24)
    with serving(folder, token="t" * 20) as url:
        lines = []
        for _ in range(60):
            lines.append(connected(url))
            lines[-1].sendall(sent)
            if sent in (HEALTH, HEADS["no token"]):
                assert lines[-1].recv(4096).startswith(b"HTTP/1.1 ")
        assert httpx.get(f"{url}/healthz", timeout=GENEROUS).status_code == 200
        wait_for(lambda: sum(map(is_open, lines)) <= 24)
        assert sum(map(is_open, lines)) >= 8
        for line in lines:
            line.close()


@pytest.mark.system
def test_requests_that_are_served_keep_their_connections(folder, monkeypatch):
    monkeypatch.setattr("cala.app.connections.CONNECTIONS", 24)
    head = (
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
        b"Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n"
    )
    with serving(folder) as url:
        lines, answers = [], []
        for _ in range(30):
            lines.append(connected(url))
            lines[-1].sendall(head)
            answers.append(lines[-1].recv(4096)[:12])
        assert answers == [b"HTTP/1.1 100"] * 16 + [b"HTTP/1.1 503"] * 14
        assert httpx.get(f"{url}/healthz", timeout=GENEROUS).status_code == 200
        for line in lines[:16]:
            line.sendall(b"{}")
            assert line.recv(4096).startswith(b"HTTP/1.1 422")
        for line in lines:
            line.close()


@pytest.mark.system
def test_an_answer_that_nobody_takes(folder, monkeypatch):
    monkeypatch.setattr("cala.app.connections.TAKE", 0.3)
    with serving(folder) as url, connected(url) as line:
        line.setblocking(False)
        ask = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100
        closed = select.poll()
        closed.register(line, 0)  # errors and the end are always reported

        def ended() -> bool:
            try:
                line.send(ask)
            except BlockingIOError:
                pass
            except OSError:
                return True
            return bool(closed.poll(0))

        wait_for(ended)


def test_too_many_requests(folder):
    with client_of(folder, limits={"requests": 0}) as client:
        answer = client.post("/v1/predict", files=form(1, range(1)))
        problem(answer, 503, "busy")
        assert answer.headers["retry-after"] == "1"
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 200


@pytest.mark.system
def test_two_lengths(folder):
    with serving(folder) as url, connected(url) as line:
        line.sendall(
            b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HEALTH
        )
        answer = b""
        while more := line.recv(4096):
            answer += more
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1") == 1  # nothing behind it is a request


def test_a_flood_is_one_line_a_second(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("cala.app.connections.time.monotonic", lambda: now[0])
    seldom = OncePerSecond()

    def passes(message: str, *args: object) -> str:
        record = logging.LogRecord("a", logging.ERROR, "", 1, message, args, None)
        return record.getMessage() if seldom.filter(record) else ""

    assert passes("no room for %s", 1) == "no room for 1"
    assert [passes("no room for %s", n) for n in range(5)] == [""] * 5
    assert passes("something else") == "something else"
    now[0] += 1
    assert passes("no room for %s", 2) == "no room for 2 (and 5 more like it)"
    assert passes("no room for %s", 3) == ""


def test_connections_leave_descriptors_for_the_rest(monkeypatch):
    resource = pytest.importorskip("resource")
    for soft, most in ((100, 28), (1024, 952), (65536, 1000), (resource.RLIM_INFINITY, 1000)):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, soft=soft: (soft, soft))
        assert most_connections() == most


@pytest.mark.system
def test_few_descriptors_and_a_flood(folder, tmp_path):
    resource = pytest.importorskip("resource")
    with (tmp_path / "log").open("w") as log:
        process, url = start(folder, stderr=log)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (100, 100))
        lines: list[socket.socket] = []
        enough = threading.Event()

        def flood() -> None:
            while not enough.is_set():
                lines.extend(connected(url) for _ in range(50))
                if len(lines) >= 400:
                    for line in lines[:200]:
                        line.close()
                    del lines[:200]

        def answered(method: str, path: str, **given) -> bool:
            """A client that is slow to send looks like the flood and may be cut off: it retries."""
            try:
                found = httpx.request(method, url + path, timeout=GENEROUS, **given)
            except httpx.TransportError:
                return False
            assert found.status_code == 200, found.text
            return True

        flooding = threading.Thread(target=flood, daemon=True)
        flooding.start()
        try:
            for number in range(10):
                wait_for(lambda: answered("GET", "/healthz"))
                rate = {"reject": 0.01 * (number + 1)}
                wait_for(lambda rate=rate: answered("PATCH", "/v1/model", json=rate))
        finally:
            enough.set()
            flooding.join()
            for line in lines:
                line.close()
            process.terminate()
            process.wait(GENEROUS)
    text = (tmp_path / "log").read_text()
    assert process.returncode == 0
    assert "Traceback" not in text
    assert "too many connections" in text
