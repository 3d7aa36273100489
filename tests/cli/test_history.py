"""`cala undo` and `redo` say what they did; times are local; hints can be copied."""

from __future__ import annotations

import json
import time

import pytest

from model.photos import ENCODER, write_photos


@pytest.fixture
def birds(tmp_path, inside, monkeypatch):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    write_photos(tmp_path / "known", range(4), range(5))
    out = tmp_path / "my birds"
    options = ("--encoder", ENCODER, "--fakes", "feature")
    code, said, _ = inside("fit", tmp_path / "known", "-o", out, *options)
    assert code == 0
    assert f"cala add '{out}' " in said
    return out


def test_undo_and_redo_name_the_change(birds, inside):
    assert inside("rename", birds, "class 1", "wren")[0] == 0
    assert inside("forget", birds, "class 2")[0] == 0
    for _ in range(2):
        _, said, _ = inside("undo", birds)
        assert "forget class 2" in said
        assert f"cala redo '{birds}'" in said
        _, said, _ = inside("redo", birds)
        assert "forget class 2" in said
    for change in ("forget class 2", "rename class 1 to wren"):
        assert change in inside("undo", birds)[1]
    assert "rename class 1 to wren" in inside("redo", birds)[1]
    found = json.loads(inside("redo", birds, "--json")[1])
    assert (found["action"], found["classes"]) == ("redo", ["class 0", "wren", "class 3"])
    assert inside("redo", birds)[0] == 2


def test_two_classes_become_one(birds, inside):
    found = json.loads(inside("merge", birds, "class 1", "class 2", "--json")[1])
    assert found["classes"] == ["class 0", "class 2", "class 3"]
    assert "merge class 1 into class 2" in inside("undo", birds)[1]
    assert inside("merge", birds, "class 1", "class 1")[0] == 2
    assert inside("merge", birds, "class 1", "no such")[0] == 2


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="no time zones here")
def test_history_has_local_times(birds, inside, monkeypatch):
    document = json.loads((birds / "model.json").read_text())
    utc = document["journal"][0]["time"]
    monkeypatch.setenv("TZ", "XXX-05:30")  # five and a half hours ahead
    time.tzset()
    try:
        _, said, _ = inside("show", birds)
        assert json.loads(inside("show", birds, "--json")[1])["history"][0]["time"] == utc
    finally:
        monkeypatch.undo()
        time.tzset()
    minutes = (int(utc[11:13]) * 60 + int(utc[14:16]) + 330) % (24 * 60)
    assert f"{minutes // 60:02}:{minutes % 60:02}  fit" in said
