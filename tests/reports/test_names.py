"""Names of methods, draws, data sets and folders as one line of text each, and moved reports."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from cala.cli import app
from cala.records import parse_line
from cala.reports.build import make_report
from cala.reports.runs import load_run
from cala.reports.study import make_studies
from reports.make_run import make_run
from reports.page_tables import page_tables


@pytest.fixture
def run(tmp_path):
    made = make_run(tmp_path / "run", ("nearest-mean", "odd <b>+cala"), draws=2, sessions=1)
    (made / "artifacts" / "nearest-mean.safetensors").unlink()
    return made


def test_names_are_text_in_all_files(run):
    shutil.rmtree(run / "artifacts")
    out = run / "report"
    said = CliRunner().invoke(app, ["report", str(run)]).stdout.splitlines()
    assert [line.split(":")[0] for line in said] == ["missing", "missing", "report"]
    assert "odd <b>" in said[1]
    assert r"odd \textless{}b\textgreater{}+cala & " in (
        (out / "tables" / "summary.tex").read_text("utf-8")
    )
    assert "| odd &lt;b&gt;+cala | " in (out / "tables" / "summary.md").read_text("utf-8")
    page = (out / "report.html").read_text("utf-8")
    assert "<b>+cala" not in page
    assert page_tables(page)["summary"][2]["cells"][0][0] == "odd <b>+cala"


@pytest.mark.parametrize("method", ["x" * 300, "a/../b", "", "..", "🐦" * 40])
def test_a_name_that_is_no_file_has_no_artifact(run, method):
    records = [parse_line(x) for x in (run / "records.jsonl").read_text().splitlines()]
    text = "".join(replace(r, method=method).line() for r in records)
    (run / "records.jsonl").write_text(text)
    assert any("its artifact is missing" in note for note in load_run(run).notes)


def test_data_sets_and_folders_of_two_lines(tmp_path):
    runs = [make_run(tmp_path / n, ("cala",), draws=1, dataset="d\ne") for n in ("a\nb", "c")]
    (study,) = make_studies([load_run(run) for run in runs])
    assert study.dataset == r"d\ne"
    assert study.methods == [r"a\nb: cala", "c: cala"]


def test_a_moved_run_is_reported_as_before(run, tmp_path, undrawn_figures):
    shutil.rmtree(run / "artifacts")
    first = make_report([run], run / "report")
    pages = [first.page.read_text("utf-8")]
    assert str(tmp_path) not in pages[0] + (run / "report" / "report.json").read_text("utf-8")
    moved = tmp_path / "elsewhere" / "run"
    moved.parent.mkdir()
    shutil.move(run, moved)
    again = make_report([moved], moved / "report")
    assert (again.page, again.files) == (moved / "report" / "report.html", first.files)
    assert again.page.read_text("utf-8") == pages[0]


@pytest.fixture
def quick(monkeypatch):
    """Reports without content, where only their files matter."""
    from cala.reports import assemble

    monkeypatch.setattr(assemble, "assemble", lambda *_: ([], ["report.html"], ["h"]))


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"files": 5, "notes": [], "headlines": []}', '{"notes": 1, "files": []}']
)
def test_a_damaged_manifest_is_passed_over(run, quick, text):
    make_report([run], run / "report")
    digest = json.loads((run / "report" / "report.json").read_text())["inputs"]
    (run / "report" / "report.json").write_text(text.replace("{", f'{{"inputs": "{digest}", ', 1))
    again = make_report([run], run / "report")
    assert (again.reused, again.files) == (False, ["report.html"])


def test_old_files_are_deleted_only_inside_the_report(run, quick, tmp_path):
    out = run / "report"
    for folder in (tmp_path / "figures", out / "figures"):
        folder.mkdir(parents=True)
        (folder / "old.svg").write_text("")
    files = ["../../figures/old.svg", "figures/old.svg"]
    (out / "report.json").write_text(json.dumps({"files": files, "notes": [], "headlines": []}))
    make_report([run], out)
    assert (tmp_path / "figures" / "old.svg").exists()
    assert not (out / "figures" / "old.svg").exists()
