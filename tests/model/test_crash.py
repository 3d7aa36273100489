"""A model survives the end of the process that changes it, at any moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import cala
from model.photos import write_photos
from waiting import GENEROUS

TESTS = Path(__file__).parents[1]


def start(*arguments: object, **options) -> subprocess.Popen:
    env = {
        **os.environ,
        "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}",
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen([sys.executable, *map(str, arguments)], env=env, **options)


def crash_everywhere(folder: Path, *command: object) -> list[dict]:
    """What is found after a command on FOLDER/model has ended at each of its steps in turn."""
    script = TESTS / "store" / "crashing.py"
    process = start(script, folder, *command, stdout=subprocess.PIPE, text=True)
    out, _ = process.communicate(timeout=GENEROUS)
    assert process.returncode == 0
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.system
def test_every_crash_point_leaves_the_version_before_or_after(model, tmp_path):
    new = write_photos(tmp_path / "new", range(12, 14), range(3))
    model.path.rename(tmp_path / "model")
    lines = crash_everywhere(
        tmp_path, "add", tmp_path / "model", new, "--keep-thumbnails", "--quiet"
    )
    before, after = model.classes, [*model.classes, "class 12", "class 13"]
    for line in lines:
        assert (line["version"], line["classes"]) in ((1, before), (2, after)), line
        assert line["after"] == []
    ended = [line for line in lines if line["step"] == "none"]
    assert [line["version"] for line in ended] == [2]
    steps = Counter(line["step"] for line in lines)
    assert steps["write"] >= 8  # blobs, history, model.json, each whole and torn
    assert sum(line["torn"] for line in lines) == steps["write"] / 2
    assert steps["fsync"] >= 8
    assert steps["replace"] >= 4
    assert {1, 2} == {line["version"] for line in lines if line["step"] == "fsync"}


KILLED = """
import sys
sys.path.insert(0, sys.argv[2])
from model.photos import photo
import cala
model = cala.load(sys.argv[1])
print("ready", flush=True)
for number in range(10_000):
    label = f"new {model.version}"
    model.add([photo(100 + model.version, n) for n in range(3)], label)
    if number % 3 == 2:
        model.forget(label)
    print(model.version, flush=True)
"""


@pytest.mark.system
@pytest.mark.parametrize(
    "kills", [5, pytest.param(50, marks=pytest.mark.long)], ids=["few", "many"]
)
def test_kill_9(model, kills):
    draw = random.Random(0)
    version = 1
    for _ in range(kills):
        process = start("-c", KILLED, model.path, TESTS, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        begun = time.monotonic()
        told = [int(process.stdout.readline()) for _ in range(draw.randint(1, 3))]
        each = (time.monotonic() - begun) / len(told)  # somewhere in the next one or two changes
        time.sleep(draw.uniform(0.0, 1.5) * each)
        process.send_signal(signal.SIGKILL)
        told += [int(line) for line in process.stdout.read().split()]
        process.wait()
        found = cala.load(model.path)  # checks every byte
        assert found.version >= max([version, *told])  # what was said to be done is done
        assert found.version <= max([version, *told]) + 2
        assert len(found.history()) == found.version
        version = found.version
    assert version > kills


@pytest.mark.system
def test_two_processes_add_at_the_same_time(model, tmp_path):
    folders = [write_photos(tmp_path / str(i), range(20 + i, 21 + i), range(3)) for i in range(2)]
    running = [start("-m", "cala", "add", model.path, folder, "-q") for folder in folders]
    assert [process.wait(timeout=GENEROUS) for process in running] == [0, 0]
    assert sorted(cala.load(model.path).classes[12:]) == ["class 20", "class 21"]
