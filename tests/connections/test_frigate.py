"""`cala frigate`: events in, sub labels out, whoever is away."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from contextlib import contextmanager
from pathlib import Path

import pytest

import cala
from cala.connections import frigate as room
from cala.connections.frigate import FrigateApi, FrigateAway, ObjectEvent, Sidecar, _address
from conftest import missing
from connections.frigate_double import Frigate, jpeg, message, running
from model.photos import ENCODER, photo, write_photos
from refusals import refused
from waiting import GENEROUS, wait_for

TESTS = Path(__file__).parents[1]
LABELS = ("bird", "cat")
LOGIN = {"user": "cala", "password": "a long secret"}


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def frigate():
    return Frigate()


@pytest.fixture
def sidecar(model, frigate):
    with running(frigate) as url:
        yield Sidecar(model, FrigateApi(url))


def event(id: str, *given: object, **after: object) -> ObjectEvent:
    found = ObjectEvent.parse(json.dumps(message(id, *given, **after)).encode(), LABELS)
    assert found is not None
    return found


def picture(label: int, number: int = 200) -> bytes:
    return jpeg(photo(label, number))


def test_events_that_are_for_us():
    found = event("16071.4-abc", "new", 7.5, sub_label=["Tom", 0.7])
    assert found == ObjectEvent("16071.4-abc", "garden", "bird", "Tom", 7.5, False)
    assert event("1-a", "end").ended
    assert event("1-a", snapshot=None).snapshot is None


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"null",
        b"[" * 100_000,
        json.dumps({"type": "new", "after": []}).encode(),
        *(
            json.dumps(message("1-a", **change)).encode()
            for change in (
                {"label": "car"},
                {"label": ["bird"]},
                {"has_snapshot": False},
                {"id": "../../config"},
                {"id": 5},
                {"id": "1-ä"},
                {"id": ".."},
                {"sub_label": []},
                {"snapshot": 5},
            )
        ),
        json.dumps(message("1-a", "other")).encode(),
    ],
)
def test_messages_that_are_not(payload):
    assert ObjectEvent.parse(payload, LABELS) is None


def test_an_object_is_named(sidecar, frigate, model):
    frigate.objects["1-a"] = picture(3)
    written = sidecar.handle(event("1-a", "new"))
    (answer,) = model.explain([photo(3, 200)])
    assert (written.name, answer.unknown) == ("class 3", False)
    assert frigate.sub_labels == [("1-a", "class 3", round(written.score, 4))]


def test_nothing_is_written_for_what_is_unknown(sidecar, frigate, model):
    frigate.objects["1-a"] = picture(17)
    assert model.predict([photo(17, 200)]) == ["unknown"]
    assert sidecar.handle(event("1-a")) is None
    model.rename("class 3", "None")  # as in a data set of Frigate
    frigate.objects["1-b"] = picture(3)
    assert sidecar.handle(event("1-b")) is None
    assert frigate.sub_labels == []


def test_a_data_set_of_frigate(tmp_path, inside):
    """The three commands of docs/frigate.md."""
    photos = write_photos(tmp_path / "photos", range(3), range(6))
    for number, name in enumerate(("leo", "none", "tom")):
        (photos / f"class {number}").rename(photos / name)
    assert inside("fit", photos, "-o", tmp_path / "cats", "--encoder", ENCODER, "-q")[0] == 0
    assert inside("forget", tmp_path / "cats", "none")[0] == 0
    assert inside("reject", tmp_path / "cats", photos / "none")[0] == 0
    found = cala.load(tmp_path / "cats")
    assert found.classes == ["leo", "tom"]
    assert set(found.predict(photos / "none")) == {"unknown"}


def test_better_snapshots_are_looked_at_a_few_times(sidecar, frigate, monkeypatch):
    shown = iter([("a", 0.5), ("b", 0.4), ("c", 0.9), ("c", 0.95), ("d", 0.99)])

    def recognise(data, name):
        label, share = next(shown)
        return cala.model.prediction.Prediction(name, label, label, "known", share, 1, False, ())

    monkeypatch.setattr(sidecar, "_recognise", recognise)
    frigate.objects["1-a"] = picture(3)
    assert sidecar.handle(event("1-a", "new", 1.0)).name == "a"
    assert sidecar.handle(event("1-a", "update", 1.0)) is None  # the same snapshot
    assert sidecar.handle(event("1-a", "update", 2.0, sub_label=["a", 0.5])) is None  # less sure
    assert sidecar.handle(event("1-a", "update", 3.0, sub_label=["a", 0.5])).name == "c"
    assert sidecar.handle(event("1-a", "update", 4.0, sub_label=["c", 0.9])).score == 0.95
    assert sidecar.handle(event("1-a", "update", 5.0, sub_label=["c", 0.95])) is None
    assert [(name, score) for _, name, score in frigate.sub_labels] == [
        ("a", 0.5), ("c", 0.9), ("c", 0.95)
    ]  # fmt: skip
    assert len([one for one in frigate.asked if one.startswith("GET")]) == room.LOOKS


def test_a_name_that_somebody_else_has_given_stays(sidecar, frigate):
    frigate.objects["1-a"] = picture(3)
    assert sidecar.handle(event("1-a", sub_label=["Tom", 1.0])) is None
    assert frigate.asked == []


def test_the_end_is_looked_at_only_if_nothing_else_was(sidecar, frigate):
    frigate.objects |= {"1-a": picture(17), "1-b": picture(3)}
    assert sidecar.handle(event("1-a", "new", 1.0)) is None
    frigate.objects["1-a"] = picture(3)
    assert sidecar.handle(event("1-a", "end", 2.0)) is None
    assert sidecar.handle(event("1-b", "end")).name == "class 3"


def test_objects_that_frigate_does_not_have_yet(sidecar, frigate):
    assert sidecar.handle(event("1-a", "new")) is None  # no live frame
    frigate.objects["1-a"], frigate.stored = picture(3), set()
    assert sidecar.handle(event("1-a", "update")) is None  # not in its database
    frigate.stored = {"1-a"}
    assert sidecar.handle(event("1-a", "update")).name == "class 3"


def test_options_are_checked_at_once(model):
    with refused("3", field="reject"):
        Sidecar(model, FrigateApi("http://localhost"), reject=3)


def test_a_model_that_changes_is_followed(sidecar, frigate, model):
    frigate.objects |= {"1-a": picture(30), "1-b": picture(30)}
    assert sidecar.handle(event("1-a")) is None
    cala.load(model.path).add([photo(30, n) for n in range(5)], "x" * 99)
    cala.load(model.path).rename("x" * 99, "kingfisher")
    assert sidecar.handle(event("1-b")).name == "kingfisher"


def test_snapshots_stay_out_of_the_cache(sidecar, frigate):
    from cala.data.cache import RowCache

    before = RowCache("embeddings").size()
    frigate.objects["1-a"] = picture(3)
    assert sidecar.handle(event("1-a")) is not None
    assert RowCache("embeddings").size() == before


def test_few_objects_are_remembered(sidecar, monkeypatch):
    monkeypatch.setattr(room, "REMEMBERED", 5)
    for number in range(20):
        sidecar.handle(event(f"1-{number}"))
    assert len(sidecar._known) == 5


def run(sidecar: Sidecar, events: list[ObjectEvent], until) -> list:
    """What was written until something is the case."""
    stop, found = threading.Event(), []
    waiting = deque(events, maxlen=room.WAITING)
    thread = threading.Thread(target=lambda: found.extend(sidecar.run(waiting, stop)))
    thread.start()
    try:
        wait_for(until)
    finally:
        stop.set()
        thread.join()
    return found


def test_faults_of_one_object_are_said_and_the_next_is_named(model, frigate):
    notes: list[str] = []
    with running(frigate) as url:
        sidecar = Sidecar(model, FrigateApi(url), say=notes.append)
        frigate.objects |= {"1-a": b"no picture", "1-b": picture(3)}
        found = run(sidecar, [event("1-a"), event("1-b")], lambda: frigate.sub_labels)
    assert [one.id for one, _ in found] == ["1-b"]
    assert len(notes) == 1


@pytest.mark.parametrize("status", [500, 401, 403])
def test_a_frigate_that_refuses(model, frigate, status):
    notes: list[str] = []
    frigate.status = status
    with running(frigate) as url:
        sidecar = Sidecar(model, FrigateApi(url), say=notes.append)
        with refused(status, code="frigate_refuses"):
            sidecar.handle(event("1-a"))
        run(sidecar, [event("1-a"), event("1-b")], lambda: len(frigate.asked) == 3)
    assert len(notes) == 1


def test_a_frigate_that_is_away_for_a_while(model, frigate, monkeypatch):
    monkeypatch.setattr(room, "FIRST_PAUSE", 0.01)
    notes: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    sidecar = Sidecar(model, FrigateApi(f"http://127.0.0.1:{port}"), say=notes.append)
    with pytest.raises(FrigateAway):
        sidecar.handle(event("1-a"))
    frigate.objects |= {"1-a": picture(3), "1-b": picture(4)}
    frigate.first = [503, 502, 504]  # a proxy answers while it starts
    with running(frigate, port):
        found = run(sidecar, [event("1-a"), event("1-b")], lambda: len(frigate.sub_labels) == 2)
    assert ([one.id for one, _ in found], frigate.first) == (["1-a", "1-b"], [])
    assert len(notes) == 3  # each answer is said once


def test_a_login(frigate):
    frigate.login, frigate.objects["1-a"] = LOGIN, b"x"
    with running(frigate) as url:
        api = FrigateApi(url + "/", **LOGIN)
        assert (api.snapshot("1-a"), api.snapshot("1-b")) == (b"x", None)
        assert api.set_sub_label("1-a", "x" * 200, 1e-9)
        assert frigate.asked.count("POST /api/login") == 1
        assert FrigateApi(url, **LOGIN).snapshot("1-b") is None  # once it is logged in
        for bad in ({}, {"user": "cala", "password": "wrong"}):
            with refused("401", code="frigate_refuses"):
                FrigateApi(url, **bad).snapshot("1-a")
        frigate.first = [401, 503]
        with pytest.raises(FrigateAway):
            api.snapshot("1-a")
    assert frigate.sub_labels == [("1-a", "x" * 100, 0.0001)]


@pytest.mark.parametrize(
    "url",
    ["", "frigate:5000", "file:///etc/passwd", "http://", "http://a:b@c", "http://[", "http://c:x"],
)
def test_addresses_that_are_none(url):
    with refused(field="frigate") as caught:
        FrigateApi(url)
    assert "a:b" not in str(caught.value)


@pytest.mark.parametrize(
    "broker", ["", "[", "a:b", "user:secret@host", "host:99999", "mqtt://host"]
)
def test_brokers_that_are_none(broker):
    with refused(field="mqtt") as caught:
        _address(broker)
    assert "secret" not in str(caught.value)


@pytest.fixture
def broker(tmp_path):
    """Starts a real broker on a port; it asks for a password if one is given."""
    command = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    if not Path(command).exists():
        missing("frigate", "no mosquitto")
    try:
        import paho.mqtt.client  # noqa: F401
    except ImportError:
        missing("frigate", "no paho-mqtt")

    @contextmanager
    def start(port: int, login: dict | None = None):
        config = tmp_path / "mosquitto.conf"
        lines = [f"listener {port} 127.0.0.1", f"allow_anonymous {str(login is None).lower()}"]
        if login:
            passwords = tmp_path / "passwords"
            passwords.touch(0o600)
            tool = Path(command).parents[1] / "bin" / "mosquitto_passwd"
            words = [tool, "-b", passwords, login["user"], login["password"]]
            subprocess.run(words, check=True, capture_output=True)
            lines += [f"password_file {passwords}", "user root"]
        config.write_text("\n".join(lines) + "\n")
        process = subprocess.Popen([command, "-c", config], stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: _listens(port))
            yield
        finally:
            process.terminate()
            process.wait(GENEROUS)

    return start


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def publish(port: int, payload: object, login: dict | None = None) -> None:
    import paho.mqtt.publish

    auth = login and {"username": login["user"], "password": login["password"]}
    text = json.dumps(payload)
    paho.mqtt.publish.single("frigate/events", text, hostname="127.0.0.1", port=port, auth=auth)


@pytest.mark.system
def test_the_command_with_a_broker_that_comes_and_goes(broker, model, frigate, tmp_path):
    frigate.login = LOGIN
    frigate.objects |= {f"1-{label}": picture(label) for label in range(5)}
    path = f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"
    secrets = {
        **{"CALA_MQTT_USER": "cala", "CALA_MQTT_PASSWORD": "a broker's secret"},
        **{"CALA_FRIGATE_USER": LOGIN["user"], "CALA_FRIGATE_PASSWORD": LOGIN["password"]},
    }
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **secrets}
    login, port = {"user": "cala", "password": "a broker's secret"}, _free_port()
    log = tmp_path / "log"
    with running(frigate) as url, log.open("w") as file:
        words = ["frigate", model.path, "--mqtt", f"127.0.0.1:{port}", "--frigate", url]
        words = [sys.executable, "-m", "cala", *words, "--labels", "bird", "--json"]
        process = subprocess.Popen(list(map(str, words)), env=env, stdout=file, stderr=file)
        try:
            wait_for(lambda: "away" in log.read_text())  # there is no broker yet
            for turn in (1, 2):
                with broker(port, login):
                    wait_for(lambda: log.read_text().count("listening") == turn)  # noqa: B023
                    publish(port, message("1-0", label="car"), login)
                    publish(port, "no event", login)
                    publish(port, message(f"1-{turn}"), login)
                    wait_for(lambda: len(frigate.sub_labels) == turn)  # noqa: B023
                wait_for(lambda: log.read_text().count("away") == turn + 1)  # noqa: B023
            process.send_signal(signal.SIGINT)
            assert process.wait(GENEROUS) == 0
        finally:
            process.kill()
            process.wait()
    assert [(id, name) for id, name, _ in frigate.sub_labels] == [
        ("1-1", "class 1"), ("1-2", "class 2")
    ]  # fmt: skip
    said = log.read_text()
    written = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert [(one["id"], one["camera"], one["name"]) for one in written] == [
        ("1-1", "garden", "class 1"), ("1-2", "garden", "class 2")
    ]  # fmt: skip
    assert "Traceback" not in said
    assert "secret" not in said


@pytest.mark.system
def test_a_broker_that_refuses(broker, model, tmp_path):
    port, log = _free_port(), tmp_path / "log"
    path = f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"
    env = {**os.environ, "PYTHONPATH": path, "CALA_MQTT_USER": "x", "CALA_MQTT_PASSWORD": "secret"}
    with broker(port, LOGIN), log.open("w") as file:
        words = ["frigate", model.path, "--mqtt", f"127.0.0.1:{port}", "--labels", "bird"]
        words = [sys.executable, "-m", "cala", *words, "--frigate", "http://127.0.0.1:9"]
        process = subprocess.Popen(list(map(str, words)), env=env, stdout=file, stderr=file)
        try:
            wait_for(lambda: "refuses" in log.read_text())
            process.send_signal(signal.SIGTERM)
            assert process.wait(GENEROUS) == 0
        finally:
            process.kill()
            process.wait()
    assert log.read_text().count("refuses") == 1
    assert "secret" not in log.read_text()
