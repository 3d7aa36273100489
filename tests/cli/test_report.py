"""`cala report`, and the report at the end of `cala run`, as a process."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from cli.inside import refusal
from cli.test_bench import QUICK, cala
from problems import blobs
from refusals import assert_names
from reports.make_run import make_run

pytestmark = pytest.mark.usefixtures("undrawn_figures")


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory):
    x, y = blobs(12, 30, 12)
    train = np.arange(len(y)) % 2 == 0
    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(
        path, x_train=x[train], y_train=y[train], x_test=x[~train], y_test=y[~train],
        holdout=np.ones(train.sum(), bool),
    )  # fmt: skip
    return path


def run(embeddings, out, *more):
    return cala(
        "run", "small", "--embeddings", embeddings, *QUICK, "--draws", "random:2",
        "--methods", "nearest-mean,la", "--out", out, *more,
    )  # fmt: skip


def test_a_run_ends_with_its_report_and_need_not(embeddings, tmp_path):
    out = tmp_path / "run"
    done = run(embeddings, out, "--no-report")
    assert done.returncode == 0, done.stderr
    assert not (out / "report").exists()
    done = run(embeddings, out)
    assert done.returncode == 0, done.stderr
    before, sentence = done.stdout.split(f"report: {out / 'report' / 'report.html'}\n")
    assert sentence.startswith("On small, after 4 novel classes joined 8 base classes, la ")
    assert sentence.count("\n") > 1
    assert max(map(len, sentence.splitlines())) <= 80
    assert "AUSUC" in before, "the terminal's table comes first"
    assert (out / "report" / "report.html").stat().st_size > 10_000
    machine = run(embeddings, out, "--json")
    assert set(json.loads(machine.stdout)["random"]) == {"nearest-mean", "la"}


def test_report_as_json_elsewhere_and_with_images(tmp_path):
    names = [f"kind {i}" for i in range(18)]
    made = make_run(tmp_path / "run", names=names)
    for name in names:
        (tmp_path / "photos" / "train" / name).mkdir(parents=True)
        Image.new("RGB", (50, 30), "teal").save(tmp_path / "photos" / "train" / name / "a.png")
    done = cala("report", made, "-o", tmp_path / "out", "--images", tmp_path / "photos", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["notes"] == []
    assert found["page"] == str(tmp_path / "out" / "report.html")
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert page.count('src="data:image/jpeg;base64,') >= 4
    assert not (made / "report").exists()


@pytest.mark.parametrize(
    ("arguments", "field", "named"),
    [
        (["nothing"], "runs", "nothing"),
        (["."], "runs", "config.json"),
        (["R", "--images", "no"], "images", "--images no"),
    ],
)
def test_bad_calls_are_one_line(arguments, field, named, tmp_path):
    made = make_run(tmp_path / "made" / "run", methods=("nearest-mean",), draws=1)
    given = [str(made) if a == "R" else a for a in arguments]
    assert_names(refusal("report", *given, cwd=tmp_path), named, field=field)


def test_only_open_opens(tmp_path, monkeypatch):
    import typer
    from typer.testing import CliRunner

    from cala.cli import app

    opened = []
    monkeypatch.setattr(typer, "launch", opened.append)
    made = make_run(tmp_path / "run", methods=("nearest-mean",), draws=1)
    assert CliRunner().invoke(app, ["report", str(made)]).exit_code == 0
    assert opened == []
    again = CliRunner().invoke(app, ["report", str(made), "--open"])
    assert opened == [(made / "report" / "report.html").as_uri()]
    assert "(unchanged)" in again.stdout


def test_help_imports_neither_matplotlib_nor_jinja():
    code = (
        "import sys; from cala.cli import app\n"
        "try: app(['report', '--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('matplotlib', 'jinja2', 'numpy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "Example:" in done.stdout


@pytest.mark.system
def test_report_needs_no_torch(tmp_path):
    made = make_run(tmp_path / "run")
    code = (
        "import sys; from pathlib import Path; from cala.reports.build import make_report\n"
        f"make_report([Path({str(made)!r})], Path({str(tmp_path / 'out')!r}))\n"
        "print('torch' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False"
