"""A real process: killed while it is taught, and ended while it works."""

from __future__ import annotations

import itertools
import random
import signal
import threading
import time

import httpx
import pytest

import cala
from app.clients import form
from app.servers import start
from cala.errors import InputError
from cala.model.model import load
from waiting import GENEROUS, wait_for

pytestmark = pytest.mark.system


def teach(url: str, name: str, label: int) -> dict:
    answer = httpx.post(
        f"{url}/v1/classes",
        data={"name": name},
        files=form(label, range(3)),
        headers={"Idempotency-Key": f"key of {name}"},
        timeout=GENEROUS,
    )
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.mark.parametrize(
    "kills", [3, pytest.param(20, marks=pytest.mark.long)], ids=["few", "many"]
)
def test_kill_9(folder, kills):
    draw = random.Random(0)
    acknowledged: list[str] = []
    pending = "new 0"
    for kill in range(kills + 1):
        process, url = start(folder)
        if kill == kills:  # the last one lives: what was not answered is asked again, once
            assert teach(url, pending, 100 + len(acknowledged))["name"] == pending
            acknowledged.append(pending)
            found = httpx.get(f"{url}/v1/classes", params={"kind": "new", "limit": 1000}).json()
            process.terminate()
            assert process.wait(GENEROUS) == 0
            break
        before_the_blow, spent = draw.randint(1, 2), 0.1
        try:
            for number in itertools.count():
                if number == before_the_blow:  # somewhere in the next teaching, however slow it is
                    threading.Timer(draw.uniform(0, 1.2) * spent, process.kill).start()
                pending, begun = f"new {len(acknowledged)}", time.monotonic()
                teach(url, pending, 100 + len(acknowledged))
                spent = time.monotonic() - begun
                acknowledged.append(pending)
        except httpx.TransportError:
            pass
        process.wait(GENEROUS)
        names = load(folder).classes[12:]  # checks every byte
        assert names[: len(acknowledged)] == acknowledged
        assert names[len(acknowledged) :] in ([], [pending])
    assert [(c["name"], c["photos"]) for c in found["classes"]] == [(n, 3) for n in acknowledged]
    assert len(acknowledged) > kills


def test_sigterm_finishes_what_was_accepted(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    slow, folder = "torch:app.slow_encoder:slow", tmp_path / "birds"
    cala.fit(photos / "known", folder, encoder=slow, fakes="feature", method="nearest-mean")
    process, url = start(folder, "--engine", "torch")
    (tmp_path / "started").unlink(missing_ok=True)
    answers: list[dict] = []
    asking = threading.Thread(target=lambda: answers.append(teach(url, "slow", 30)))
    asking.start()
    wait_for((tmp_path / "started").exists)
    process.send_signal(signal.SIGTERM)
    asking.join(GENEROUS)
    assert process.wait(GENEROUS) == 0
    assert answers[0]["name"] == "slow"
    assert "slow" in cala.load(folder).classes


def test_secrets_are_in_no_log(folder, tmp_path):
    token = "a-secret-of-many-letters"
    with open(tmp_path / "log", "w+") as log:
        process, url = start(folder, stderr=log, CALA_TOKEN=token)
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{url}/v1/model", headers=headers).status_code == 200
        for path in (f"/v1/classes?search={token}", f"/v1/{token}", f"/v1/classes/{token}"):
            httpx.get(url + path, headers=headers)
        httpx.get(f"{url}/v1/model", headers={"Authorization": f"Bearer {token}x"})
        process.terminate()
        rest = process.communicate(timeout=GENEROUS)[0]
        log.seek(0)
        assert token not in rest + log.read()


def test_a_port_that_is_taken(folder):
    from cala.app.server import listen

    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(InputError) as refused:
            listen("127.0.0.1", taken.getsockname()[1])
        assert refused.value.field == "port"


def test_share_makes_a_token_and_prints_its_link(folder):
    process, link = start(folder, "--share")
    address, _, token = link.partition("/#token=")
    url = f"http://127.0.0.1:{address.rpartition(':')[2]}/v1/model"
    try:
        assert len(token) >= 16
        assert httpx.get(url, timeout=GENEROUS).status_code == 401
        found = httpx.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=GENEROUS)
        assert found.json()["share"] == address
    finally:
        process.terminate()
        assert process.wait(GENEROUS) == 0
