"""Sessions that are missing: the others are shown in their places, and the page says which."""

from __future__ import annotations

import json
import shutil
import warnings

import pytest

from cala.reports.build import make_report
from cala.reports.run import read_run
from cala.reports.study import make_studies
from reports.page_tables import page_tables
from reports.test_damage import is_cell, lines, write

SHOWN = "is shown as –, and so are means over sessions."


def study_of(run):
    (study,) = make_studies([read_run(run)])
    return study


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_session_that_all_lack_is_empty_and_the_others_stay(run, lost):
    before = study_of(run)
    write(run, [r for r in lines(run) if r["session"] != lost])
    assert read_run(run).notes == [
        f"No cell has all sessions: what is missing (session {lost}) {SHOWN}"
    ]
    after = study_of(run)
    assert (after.sessions, after.n_base, after.n_classes) == (3, 12, 18)
    for t, (old, new) in enumerate(
        zip(
            before.per_session("cala", "accuracy"),
            after.per_session("cala", "accuracy"),
            strict=True,
        )
    ):
        assert (new.mean != new.mean) if t == lost else (new == old)
    draws = after.draws
    assert after.results.estimate("cala", "last", draws) == before.results.estimate(
        "cala", "last", draws
    )
    average = after.results.estimate("cala", "avg", draws).mean
    assert average != average, "no average of other sessions under the same name"


def test_a_report_without_session_0_is_made(run):
    shutil.rmtree(run / "artifacts")
    write(run, [r for r in lines(run) if r["session"] != 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = make_report([run], run / "report")
    assert made.notes[0] == f"No cell has all sessions: what is missing (session 0) {SHOWN}"
    assert not any("could not be made" in note for note in made.notes)
    page = made.page.read_text("utf-8")
    assert made.notes[0] in page
    row = page_tables(page)["sessions"][1]["cells"]
    assert row[1][0] == "–"
    assert all(cell[1] is not None for cell in row[2:5])
    assert "after 6 novel classes joined 12 base classes" in page


def test_the_last_session_that_all_lack_ends_the_report_before_it(run):
    write(run, [r for r in lines(run) if r["session"] != 3])
    found = read_run(run)
    assert found.sessions == 2
    assert found.notes == ["No cell has all sessions to 3: the report ends at session 2."]


def test_a_session_that_one_method_lacks(run):
    write(run, [r for r in lines(run) if (r["method"], r["session"]) != ("cala", 1)])
    assert read_run(run).notes == [
        f"cala: no cell has all sessions: what is missing (session 1) {SHOWN}"
    ]
    study = study_of(run)
    assert [e.n for e in study.per_session("cala", "accuracy")] == [2] * 4
    assert all(e.mean == e.mean for e in study.per_session("nearest-mean", "accuracy"))


def test_cells_with_different_holes(run):
    """The sessions that most cells have are kept."""
    kept = [
        r for r in lines(run)
        if r["session"] != (1 if is_cell(r, r["method"], "random:0") else 2)
    ]  # fmt: skip
    write(run, kept)
    found = read_run(run)
    assert {r.draw for r in found.records} == {"canonical", "random:1"}
    assert f"No cell has all sessions: what is missing (session 2) {SHOWN}" in found.notes
    assert "cala: 1 of 3 cells are missing (random:0 without session 1)." in found.notes


def test_an_unfinished_method_is_left_out_and_named(run):
    write(run, [r for r in lines(run) if r["method"] != "cala" or r["session"] < 2])
    found = read_run(run)
    assert {r.method for r in found.records} == {"nearest-mean"}
    (note,) = found.notes
    assert note.startswith("cala: 3 of 3 cells are missing (canonical without sessions 2, 3; ")


def test_without_a_configuration_lost_cells_are_named_too(run):
    (run / "config.json").unlink()
    write(
        run, [r for r in lines(run) if not (is_cell(r, "cala", "random:1") and r["session"] == 0)]
    )
    assert "cala: 1 of 3 cells are missing (random:1 without session 0)." in read_run(run).notes


def test_class_counts_without_a_configuration_or_session_0(run):
    (run / "config.json").unlink()
    write(run, [r for r in lines(run) if r["session"] != 0])
    assert study_of(run).n_base == 12
    write(run, [r for r in lines(run) if r["session"] == 3])
    assert study_of(run).n_base == 12, "artifacts know"


def test_records_beyond_the_protocol(run):
    config = json.loads((run / "config.json").read_text())
    config["protocol"]["sessions"] = 2
    (run / "config.json").write_text(json.dumps(config))
    found = read_run(run)
    assert found.sessions == max(r.session for r in found.records) == 2
    assert any(
        "Records reach session 3, the protocol of config.json ends at 2" in n for n in found.notes
    )


def test_a_protocol_of_a_billion_sessions(run):
    config = json.loads((run / "config.json").read_text())
    config["protocol"]["sessions"] = 10**9
    (run / "config.json").write_text(json.dumps(config))
    found = read_run(run)
    assert found.notes == ["No cell has all sessions to 1000000000: the report ends at session 3."]
    assert len(found.records) == 24
