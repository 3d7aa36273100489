"""Damaged and unfinished runs: what is whole is reported, and the page says what is missing."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from cala import storage
from cala.errors import DamagedFile, InputError
from cala.reports.build import make_report
from cala.reports.runs import load_run
from cala.reports.study import make_studies
from reports.make_run import make_run
from reports.page_tables import page_tables


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("whole") / "run")


def keep(run, wanted):
    """Keep the lines whose record is wanted."""
    path = run / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if wanted(json.loads(line))))


def change_config(run, **values):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, **values}))


def of(record):
    return record["method"], record["draw"], record["session"]


def test_a_whole_run_has_no_notes(run):
    assert load_run(run).notes == []


def test_a_missing_session_takes_its_cell_out(run):
    keep(run, lambda r: of(r) != ("cala", "random:1", 2))
    found = load_run(run)
    assert found.notes == ["cala: 1 of 4 cells are missing (random:1)."]
    (study,) = make_studies([found])
    assert study.results.estimate("cala", "last", study.draws).n == 2
    assert study.results.difference("cala", "la", "last", study.draws).n == 2


def test_a_changed_digit_takes_its_cell_out(run):
    path = run / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    at = next(i for i, x in enumerate(lines) if of(json.loads(x)) == ("la", "random:0", 3))
    lines[at] = lines[at].replace('"accuracy": 0.', '"accuracy": 0.9', 1)
    path.write_text("".join(lines))
    found = load_run(run)
    assert len(found.notes) == 2
    assert "1 line of records.jsonl" in found.notes[0]
    assert found.notes[1] == "la: 1 of 4 cells are missing (random:0)."
    (study,) = make_studies([found])
    assert study.results.estimate("la", "last", study.draws).n == 2


def test_one_note_says_how_many_lines_are_unreadable(run):
    text = (run / "records.jsonl").read_text()
    (run / "records.jsonl").write_text('{"method": 3}\n[1]\n\x00\n' + text + text[:50])
    (note,) = load_run(run).notes
    assert "4 lines" in note


def test_an_unfinished_method_is_left_out_and_named(run):
    keep(run, lambda r: r["method"] != "cala" or r["session"] < 2)
    found = load_run(run)
    assert {r.method for r in found.records} == {"nearest-mean", "la"}
    assert found.notes == [
        "cala: 4 of 4 cells are missing (canonical; random:0; random:1; random:2)."
    ]


def test_missing_cells_are_named_with_their_seeds(run):
    change_config(run, draws=["canonical", "random:0"], seeds=[0, 1], methods=["cala"])
    assert load_run(run).notes == [
        "cala: 2 of 4 cells are missing (canonical, seed 1; random:0, seed 1)."
    ]


def test_records_without_groups_have_intervals_over_draws_alone(run):
    path = run / "records.jsonl"
    lines = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if of(record)[:2] == ("cala", "random:1"):
            del record["groups"], record["crc32"]
            line = json.dumps(record)
        lines.append(line + "\n")
    path.write_text("".join(lines))
    (study,) = make_studies([load_run(run)])
    last = {m: study.results.estimate(m, "last", study.draws) for m in ("la", "cala")}
    assert [(e.n, e.groups) for e in last.values()] == [(3, 20), (3, 0)]
    assert "(cala: draws alone)" in study.results.covered(study.draws)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("switch", lambda a: a[:-1]),
        ("beta", lambda a: a * np.nan),
        ("confusion", lambda a: a[::-1]),
        ("predicted_after", lambda a: np.where(np.arange(len(a)) == 0, 18, a)),
    ],
)
def test_a_changed_artifact_has_no_figures(run, name, changed):
    path = run / "artifacts" / "la.safetensors"
    with safe_open(path, "np") as file:
        header = file.metadata()
    arrays = load_file(path)
    arrays[name] = np.ascontiguousarray(changed(arrays[name]).astype(arrays[name].dtype))
    save_file(arrays, path, metadata=header)
    found = load_run(run)
    assert set(found.artifacts) == {"nearest-mean", "cala"}
    (note,) = found.notes
    assert note.startswith("la: its artifact cannot be used (")
    assert str(run) not in note


@pytest.mark.parametrize("n_base", [0, 19, None, "12"])
def test_an_artifact_with_impossible_base_classes(run, n_base):
    path = run / "artifacts" / "la.safetensors"
    storage.write(path, "artifact", {"n_base": n_base}, load_file(path))
    assert "la" not in load_run(run).artifacts


def test_old_artifacts_that_do_not_fit_leave_the_other_figures(tmp_path, undrawn_figures):
    """Versions 1 and 2 have no checksum."""
    run = make_run(tmp_path / "old", schema=2)
    path = run / "artifacts" / "cala.safetensors"
    arrays = load_file(path)
    arrays["labels"] = arrays["labels"][:-1]
    save_file(arrays, path, metadata={"schema": "2", "meta": '{"n_base": 12}'})
    made = make_report([run], run / "report")
    assert any("could not be made" in note for note in made.notes)
    assert {"figures/curves.svg", "figures/similarity.svg"} <= set(made.files)


def test_artifacts_missing_and_unreadable(run):
    artifacts = run / "artifacts"
    (artifacts / "la.safetensors").unlink()
    (artifacts / "cala.safetensors").write_bytes(b"\x00" * 100)
    found = load_run(run)
    assert set(found.artifacts) == {"nearest-mean"}
    assert [note.split(":")[0] for note in found.notes] == ["la", "cala"]


def test_a_report_of_all_damages_at_once_is_made_and_says_so(run):
    keep(run, lambda r: r["method"] != "la" or r["draw"] == "random:2")
    keep(run, lambda r: of(r) != ("cala", "random:0", 1))
    with (run / "records.jsonl").open("a") as file:
        file.write("[" * 1000)
    (run / "artifacts" / "nearest-mean.safetensors").unlink()
    (run / "artifacts" / "la.safetensors").write_bytes(b"")
    (run / "costs.json").write_text("[]")
    made = make_report([run], run / "report")
    page = made.page.read_text("utf-8")
    assert 'id="missing"' in page
    parts = ("1 line", "la: 3 of 4", "cala: 1 of 4", "is missing", "cannot be used", "costs.json")
    for words in parts:
        assert any(words in note for note in made.notes), words
        assert words in page
    assert len(made.notes) == len(parts)
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


@pytest.mark.parametrize("schema", [1, 2])
def test_artifacts_of_older_versions_are_read(tmp_path, undrawn_figures, schema):
    run = make_run(tmp_path / "old", schema=schema)
    made = make_report([run], run / "report")
    assert made.notes == []
    drawn = {f.split("/")[1][:-4] for f in made.files if f.endswith(".svg")}
    assert {"confusion", "tradeoff", "softmax", "classes", "similarity"} <= drawn
    assert ("tsne" in drawn) == (schema == 2), "logits of the sample came with schema 2"


def test_nothing_to_report(tmp_path, run):
    (run / "records.jsonl").write_text("")
    with pytest.raises(InputError) as error:
        make_report([run], tmp_path / "out")
    assert error.value.code == "nothing_to_report"
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as error:
        make_report([make_run(tmp_path / "r")], tmp_path / "file" / "x")
    assert error.value.field == "out"
    (run / "config.json").write_text("{")
    with pytest.raises(DamagedFile):
        make_report([run], tmp_path / "out")
