"""Hand-damaged runs still give a report, and it says what is missing."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cala.errors import InputError
from cala.reports.build import make_report
from cala.reports.run import find_runs, read_run
from cala.reports.study import make_studies
from reports.make_run import make_run
from reports.page_tables import page_tables


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture
def run(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def lines(run):
    return [json.loads(x) for x in (run / "records.jsonl").read_text().splitlines()]


def write(run, records):
    (run / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))


def is_cell(record, method, draw):
    return (record["method"], record["draw"]) == (method, draw)


def test_a_whole_run_has_no_notes(run):
    assert read_run(run).notes == []


def test_a_missing_session(run):
    write(
        run, [r for r in lines(run) if not (is_cell(r, "cala", "random:1") and r["session"] == 2)]
    )
    found = read_run(run)
    assert found.notes == ["cala: 1 of 4 cells are missing (random:1 without session 2)."]
    study = make_studies([found])[0]
    assert study.results.estimate("cala", "last", study.draws).n == 2
    assert study.results.difference("cala", "la", "last", study.draws).n == 2


@pytest.mark.parametrize("value", [float("nan"), "many", True, None, 1e308, -0.1, 1.5])
def test_an_accuracy_that_is_none_takes_its_draw_out(run, value):
    records = lines(run)
    broken = next(r for r in records if is_cell(r, "la", "random:0") and r["session"] == 3)
    broken["metrics"]["accuracy"] = value
    write(run, records)
    found = read_run(run)
    place = f"({json.dumps(value)} in la, random:0, session 3)"
    assert found.notes == [
        f"accuracy is no rate from 0 to 1 in 1 of 48 records {place}; these records are left out.",
        "la: 1 of 4 cells are missing (random:0 without session 3).",
    ]
    study = make_studies([found])[0]
    assert study.results.estimate("la", "last", study.draws).n == 2


@pytest.mark.parametrize("value", [7, "many", [1, 2], {}, {"base_images": [1]}])
def test_groups_that_are_none_leave_intervals_over_draws_alone(run, value):
    records = lines(run)
    study = make_studies([read_run(run)])[0]
    assert study.results.estimate("cala", "last", study.draws).groups == 20
    for record in records:
        if is_cell(record, "cala", "random:1"):
            record["groups"] = value
    write(run, records)
    found = read_run(run)
    (note,) = found.notes
    assert note.startswith("groups is no ")
    assert note.endswith("these values are left out.")
    study = make_studies([found])[0]
    last = {m: study.results.estimate(m, "last", study.draws) for m in ("la", "cala")}
    assert [(e.n, e.groups) for e in last.values()] == [(3, 20), (3, 0)]
    assert "(cala: draws alone)" in study.results.covered(study.draws)


def test_fields_and_schemas_of_the_future(run):
    records = lines(run)
    records[0]["mood"] = "good"
    records[0]["metrics"]["charm"] = 0.5
    write(run, records)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "schema": 9, "weather": []}))
    found = read_run(run)
    assert "Unknown fields are passed over: mood." in found.notes
    assert any("unknown schema 9" in n for n in found.notes)
    assert len({r.cell for r in found.records}) == 12


def test_lines_that_are_none(run):
    text = (run / "records.jsonl").read_text()
    (run / "records.jsonl").write_text('{"method": 3}\n[1]\n\x00\n' + text + text[:50])
    found = read_run(run)
    assert found.notes == ["4 of the lines in records.jsonl cannot be read; passed over."]


def test_artifacts_missing_damaged_and_misshapen(run):
    artifacts = run / "artifacts"
    (artifacts / "la.safetensors").unlink()
    (artifacts / "cala.safetensors").write_bytes(b"\x00" * 100)
    path = artifacts / "nearest-mean.safetensors"
    arrays = load_file(path)
    arrays["switch"] = arrays["switch"][:-1]
    arrays["beta"] = np.full_like(arrays["beta"], np.nan)
    arrays["predicted_after"] = arrays["predicted_after"] + 1000
    meta = json.dumps({"n_base": 12})
    save_file(arrays, path, metadata={"schema": "7", "meta": meta})
    found = read_run(run)
    words = " ".join(found.notes)
    assert "la: its artifact is missing; its figures are left out." in words
    assert "cala: its artifact cannot be read" in words
    assert "unknown schema 7" in words
    assert "beta of its artifact contains NaN" in words
    assert "switch of its artifact has the shape" in words
    assert "predicted_after of its artifact names classes that do not exist" in words
    assert found.artifacts["nearest-mean"].trade_off() is None


def test_a_report_of_all_damages_at_once_is_made_and_says_so(run):
    (run / "config.json").write_text("{")
    records = [r for r in lines(run) if r["method"] != "la" or r["draw"] == "random:2"]
    records = [r for r in records if not (is_cell(r, "cala", "random:0") and r["session"] == 1)]
    records[3]["metrics"]["hm"] = float("inf")
    records[5]["later"] = 1
    write(run, records)
    (run / "artifacts" / "nearest-mean.safetensors").unlink()
    (run / "artifacts" / "la.safetensors").write_bytes(b"")
    made = make_report([run], run / "report")
    page = made.page.read_text("utf-8")
    assert 'id="missing"' in page
    for words in (
        "config.json cannot be read",
        "hm is no rate from 0 to 1 in 1 of",
        "later",
        "artifact is missing",
    ):
        assert any(words in note for note in made.notes), words
        assert words in page
    assert not any("could not be made" in note for note in made.notes)
    rows = {row["cells"][0][0]: row["cells"] for row in page_tables(page)["summary"]}
    assert rows["la"][-1][1] == 1, "one draw only"
    assert rows["la"][1][2] is None, "so no interval"
    assert rows["nearest-mean"][1][2] is not None


def test_without_any_artifact_there_are_tables_and_curves(run):
    shutil.rmtree(run / "artifacts")
    made = make_report([run], run / "report")
    names = {f for f in made.files if f.endswith(".svg")}
    assert names == {"figures/curves.svg", "figures/rates.svg"}
    assert len(made.notes) == 3


def test_artifacts_of_schema_one_are_read(tmp_path, undrawn_figures):
    run = make_run(tmp_path / "old", schema=1)
    made = make_report([run], run / "report")
    assert made.notes == []
    drawn = {f.split("/")[1][:-4] for f in made.files if f.endswith(".svg")}
    assert {"confusion", "tradeoff", "softmax", "classes", "similarity"} <= drawn
    assert "tsne" not in drawn, "logits of the sample came with schema 2"


def test_nothing_to_report(tmp_path, run):
    with pytest.raises(InputError, match="is no folder"):
        find_runs([tmp_path / "no"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="is no run folder"):
        find_runs([tmp_path / "empty"])
    (run / "records.jsonl").write_text("")
    with pytest.raises(InputError, match="nothing to report"):
        make_report([run], tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        make_report([make_run(tmp_path / "r")], tmp_path / "file" / "x")
