"""Progress and notes of commands whose output is no terminal."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest

from cala.benchmark.notes import RunNote, report_fallbacks
from cala.data.progress import track
from cala.errors import FallbackWarning
from cala.progress import Lines, progress, progress_bar


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lines_of(steps: list[tuple[float, int, int]]) -> list[str]:
    clock, said = Clock(), []
    lines = Lines(said.append, clock)
    for clock.now, done, total in steps:
        lines("encoding", done, total)
    return said


def test_a_line_soon_then_every_tenth_or_half_minute():
    said = lines_of([(t, t, 1000) for t in range(0, 1001)])
    assert said[0] == "encoding: 1 of 1,000 (0 %), about 17 min left"
    assert said[1].startswith("encoding: 31 of 1,000 (3 %)")
    assert said[-1] == "encoding: 1,000 of 1,000"
    assert 30 < len(said) < 50
    quick = lines_of([(t / 100, t, 1000) for t in range(0, 1001)])
    assert len(quick) == 10


def test_short_work_is_silent():
    assert lines_of([(0, 0, 50), (0.5, 50, 50)]) == []
    assert lines_of([(0, 0, 0), (5, 0, 0)]) == []


def test_work_that_begins_anew_is_told_anew():
    first = [(t, t, 10) for t in range(0, 11)]
    again = [(20 + t, t, 10) for t in range(0, 11)]
    assert lines_of(first + again).count("encoding: 10 of 10") == 2


def test_piped_output_gets_lines_and_quiet_gets_none(capsys, monkeypatch):
    monkeypatch.setattr("cala.progress.SHORT", 0.0)
    for quiet in (False, True):
        with progress_bar("encoding photos", quiet) as advance:
            advance(0, 2)
            advance(2, 2)
            list(track("decoding", "ab", 2))
        said = capsys.readouterr()
        assert said.out == ""
        assert ("encoding photos: 2 of 2\n" in said.err) is not quiet
        assert ("decoding images: 2 of 2\n" in said.err) is not quiet


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo terminal")
def test_no_bar_on_a_terminal_where_nothing_is_done():
    import pty

    code = "from cala.progress import progress_bar as p\nwith p('encoding'): pass"
    outer, inner = pty.openpty()
    subprocess.run([sys.executable, "-c", code], stderr=inner, check=True)
    os.write(inner, b"|")
    assert b"encoding" not in os.read(outer, 4096)
    os.close(outer)
    os.close(inner)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo terminal")
@pytest.mark.parametrize(("quiet", "said"), [(False, True), (True, False)])
def test_a_terminal_is_told_what_takes_a_while(quiet, said):
    import pty

    code = f"from cala.progress import busy\nwith busy('drawing', {quiet}): pass"
    outer, inner = pty.openpty()
    subprocess.run([sys.executable, "-c", code], stderr=inner, check=True)
    os.write(inner, b"|")
    assert (b"drawing" in os.read(outer, 4096)) is said
    os.close(outer)
    os.close(inner)


def test_a_fallback_becomes_a_note_and_other_warnings_stay():
    def fit():
        warnings.warn("too few", FallbackWarning, stacklevel=1)
        warnings.warn("odd", RuntimeWarning, stacklevel=1)
        return "head"

    notes: list[RunNote] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert report_fallbacks(fit, "cala", notes.append) == "head"
    assert notes == [RunNote("fallback", "cala, in all draws: too few", "cala")]
    assert [str(w.message) for w in caught] == ["odd"]


def test_quiet_is_a_function_too():
    with progress(quiet=True) as show:
        show("anything", 1, 2)


def test_a_notebook_without_widgets_gets_lines(capsys, monkeypatch):
    monkeypatch.setattr("cala.progress.SHORT", 0.0)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with progress_bar("encoding photos") as advance:
            advance(2, 2)
    assert capsys.readouterr().err == "encoding photos: 2 of 2\n"
