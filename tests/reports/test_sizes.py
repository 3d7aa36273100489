"""Reports of the smallest and of large runs, of several data sets, and of a γ ablation."""

from __future__ import annotations

import pytest

from cala.reports.build import make_report
from cala.reports.runs import load_run
from cala.reports.study import make_studies
from reports.make_run import MANY, make_run
from reports.page_tables import page_tables

SIZES = [
    {"methods": ("cala",), "base": 1, "way": 1, "sessions": 1, "draws": 1, "canonical": False,
     "names": ["🐦 & %_{\\}~^ $x$", "two\nlines"]},
    {"methods": ("cala",), "base": 2, "way": 1, "sessions": 0, "draws": 1, "canonical": False},
    {"methods": ("nearest-mean",), "base": 3, "way": 1, "sessions": 1, "draws": 2},
    {"methods": MANY, "base": 20, "way": 2, "sessions": 10, "draws": 2, "per_class": 4,
     "names": [f"{i:02d} $a class <b>whose</b> name has 40 letters_" for i in range(40)]},
]  # fmt: skip
NAMES = ["two classes", "the base session alone", "one method", "many methods, long names"]


def check(size, tmp_path):
    run = make_run(tmp_path / "run", **size)
    made = make_report([run], run / "report")
    assert made.notes == []
    page = made.page.read_text("utf-8")
    tables = page_tables(page)
    assert len(tables["summary"]) == 1 + len(size["methods"])
    assert len(tables["sessions"][0]["cells"]) == size["sessions"] + 4
    assert "<b>whose</b>" not in page, "names are text"


@pytest.mark.parametrize("size", SIZES, ids=NAMES)
def test_sizes(size, tmp_path, undrawn_figures):
    check(size, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES, ids=NAMES)
def test_figures_of_all_sizes(size, tmp_path):
    check(size, tmp_path)


def test_several_data_sets_in_one_report(tmp_path, undrawn_figures):
    runs = [make_run(tmp_path / n, dataset=n, seed=i) for i, n in enumerate(("birds", "boats"))]
    made = make_report(runs, tmp_path / "report")
    page = made.page.read_text("utf-8")
    assert made.notes == []
    assert {"figures/1-curves.svg", "figures/2-curves.svg"} <= set(made.files)
    assert "of each data set" in page
    for name in ("birds", "boats"):
        assert f"On {name}," in page


def test_runs_that_share_method_names_are_told_apart(tmp_path):
    runs = [load_run(make_run(tmp_path / n, methods=("nearest-mean", "cala"))) for n in ("a", "b")]
    (study,) = make_studies(runs)
    assert study.methods == ["a: nearest-mean", "a: cala", "b: nearest-mean", "b: cala"]
    assert study.host("b: cala") == "b: nearest-mean"


def test_runs_that_vary_gamma_give_its_table(tmp_path, undrawn_figures):
    folder = tmp_path / "gamma"
    for gamma in (0, 1, 10, 100):
        make_run(
            folder / f"gamma={gamma}", methods=("cala",), gamma=float(gamma), dataset="cifar100"
        )
    usual = make_run(tmp_path / "usual", dataset="cifar100")
    made = make_report([usual, folder], tmp_path / "report")
    rows = page_tables(made.page.read_text("utf-8"))["gamma"][1:]
    ours = [row for row in rows if not row["quoted"]]
    assert [row["cells"][0][0] for row in ours] == ["γ = 0", "γ = 1", "γ = 10", "γ = 100"]
    assert all(row["cells"][1][2] is not None for row in ours), "intervals over draws"
    assert ours[3]["cells"][3][1] < 0, "over-balanced"
    quoted = [row["cells"][1][1] for row in rows if row["quoted"]]
    assert quoted == [55.42, 55.59, 56.64, 26.53]


def test_plug_and_play_pairs_like_with_like(tmp_path):
    methods = ("nearest-mean", "cala", "teen", "teen+la", "gkeal+la")
    (study,) = make_studies([load_run(make_run(tmp_path / "run", methods=methods))])
    assert [study.host(m) for m in methods] == [None, "nearest-mean", None, "teen", None]
    study.artifacts["teen+la"].meta["metric"] = "whitened"
    assert study.host("teen+la") is None, "another metric is not the same host"
