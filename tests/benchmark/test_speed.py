"""benchmarks/speed.py says when something takes longer than its limit."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture
def speed(monkeypatch, tmp_path):
    """The script as a module, with nothing measured: seconds and milliseconds are given."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.delenv("CALA_DATA", raising=False)
    spec = importlib.util.spec_from_file_location("speed", SCRIPTS / "speed.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["speed.py", "--json", str(tmp_path / "numbers.json")])
    monkeypatch.setattr(module, "use_threads", lambda n: None)

    def run(seconds: float, milliseconds: float) -> None:
        monkeypatch.setattr(module, "median_seconds", lambda call, repeats: seconds)
        monkeypatch.setattr(module, "adding_one_class", lambda method: milliseconds)
        module.main()

    return run


def test_within_the_limits(speed, capsys):
    speed(2.0, 9.0)
    assert "OVER" not in capsys.readouterr().out


def test_over_a_limit_is_marked_and_is_a_failure(speed, capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        speed(11.3, 9.0)
    assert "over its limit: la (11.30 s, limit 3 s), cala (11.30 s, limit 10 s)" in ended.value.code
    assert "partial_fit" not in ended.value.code
    marked = [line for line in capsys.readouterr().out.splitlines() if "OVER ITS LIMIT" in line]
    assert [line.split()[0] for line in marked] == ["la", "cala", "cala-plus"]
    assert json.loads((tmp_path / "numbers.json").read_text())["fit cala s"] == 11.3
    with pytest.raises(SystemExit, match=r"nearest-mean \(10.50 ms, limit 10 ms\)"):
        speed(2.0, 10.5)
