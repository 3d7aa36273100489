"""Values that no run writes: each kind is named once, and only what depends on it is left out."""

from __future__ import annotations

import json
import shutil
import warnings

import pytest

from cala.reports.build import make_report
from cala.reports.run import read_run
from cala.reports.study import make_studies
from reports.page_tables import page_tables
from reports.test_damage import lines, write


def change_config(run, **values):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, **values}))


@pytest.mark.parametrize("value", ["x", float("nan"), True, [], 1e308, -0.01])
def test_a_bad_rate_leaves_accuracy_alone(run, value):
    records = lines(run)
    for record in records:
        record["metrics"]["fpr"] = value
    write(run, records)
    found = read_run(run)
    place = "nearest-mean, canonical, session 0"
    assert found.notes == [
        f"fpr is no rate from 0 to 1 in 24 of 24 records (first: {json.dumps(value)} in {place}); "
        "these values are left out."
    ]
    (study,) = make_studies([found])
    rate = study.results.estimate("cala", "fpr_last", study.draws).mean
    assert rate != rate
    assert study.results.estimate("cala", "last", study.draws).n == 2


def test_the_page_of_absurd_values_is_made_without_warnings(run):
    shutil.rmtree(run / "artifacts")
    records = lines(run)
    for record in records:
        record["metrics"]["fpr"] = 1e308
    records[0]["metrics"]["accuracy"] = 1e308
    write(run, records)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = make_report([run], run / "report")
    assert not any("could not be made" in note for note in made.notes)
    tables = page_tables(made.page.read_text("utf-8"))
    assert [cell[0] for cell in tables["fpr"][1]["cells"][1:]] == ["–"] * 3
    assert all(row["cells"][1][1] <= 100 for row in tables["summary"][1:])


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("n_classes", -4, "whole number from 1"),
        ("n_classes", 0, "whole number from 1"),
        ("n_classes", None, "whole number from 1"),
        ("session", True, "whole number from 0 to 1000"),
        ("session", 1.5, "whole number from 0 to 1000"),
        ("session", -1, "whole number from 0 to 1000"),
        ("session", 10**9, "whole number from 0 to 1000"),
        ("session", float("inf"), "whole number from 0 to 1000"),
        ("seed", False, "whole number"),
        ("seed", "0", "whole number"),
        ("draw", 7, "name"),
        ("method", None, "name"),
    ],
)
def test_fields_that_are_none_are_named(run, field, value, what):
    records = lines(run)
    for record in records[-3:]:
        record[field] = value
    write(run, records)
    first = read_run(run).notes[0]
    assert first.startswith(
        f"{field} is no {what} in 3 of 24 records (first: {json.dumps(value)} in"
    )
    assert first.endswith("these records are left out.")


def test_whole_floats_are_whole_numbers(run):
    records = lines(run)
    for record in records:
        for field in ("session", "seed", "n_classes"):
            record[field] = float(record[field])
    write(run, records)
    found = read_run(run)
    assert found.notes == []
    assert {type(r.session) for r in found.records} == {int}
    assert {type(r.n_classes) for r in found.records} == {int}


def test_a_configuration_of_other_kinds(run):
    change_config(run, draws=[[1]], seeds=[{}, 0, True], methods=["cala", 3])
    notes = read_run(run).notes
    assert "config.json: 1 of its draws are none (first: [1]); passed over." in notes
    assert "config.json: 2 of its seeds are none (first: {}); passed over." in notes
    assert "config.json: 1 of its methods are none (first: 3); passed over." in notes
    assert len(notes) == 3


def test_missing_cells_are_named_with_their_seeds(run):
    change_config(run, draws=["canonical", "random:0"], seeds=[0, 1])
    assert read_run(run).notes == [
        f"{method}: 2 of 4 cells are missing (canonical, seed 1; random:0, seed 1)."
        for method in ("nearest-mean", "cala")
    ]


def test_brackets_without_end(run):
    text = (run / "records.jsonl").read_text()
    (run / "records.jsonl").write_text(text + "[" * 200_000 + "\n")
    (run / "config.json").write_text("[" * 200_000)
    notes = read_run(run).notes
    assert "1 of the lines in records.jsonl cannot be read; passed over." in notes
    assert any("config.json cannot be read" in note for note in notes)


def test_a_last_line_cut_short(run):
    text = (run / "records.jsonl").read_text()
    (run / "records.jsonl").write_text(text[:-40])
    assert read_run(run).notes == [
        "1 of the lines in records.jsonl cannot be read; passed over.",
        "cala: 1 of 3 cells are missing (random:1 without session 3).",
    ]


def test_records_that_are_no_file(run):
    (run / "records.jsonl").unlink()
    (run / "records.jsonl").mkdir()
    assert any("records.jsonl cannot be read" in note for note in read_run(run).notes)
