"""Ablations: what is varied, what is trained how often, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cala.benchmark.ablation import CHOICES, ablation_configs, choice_name
from cala.benchmark.config import RunConfig
from cala.benchmark.runner import at_gamma
from cala.cli import app
from cala.data.protocol import Protocol
from cala.heads import ADAPTERS, AdaptedHead, BaseData, make_head
from problems import blobs
from refusals import refused

PROTOCOL = Protocol(name="small", base=8, way=2, shot=3, sessions=2)
USUAL = RunConfig("small", ("cala",), ("random:0",))
SAMPLES = {
    "gamma": "0.5", "mu": "-1", "rho": "0.1", "tau": "16", "shots": "2", "sessions": "3",
    "queries": "0", "inputs": "raw", "metric": "whitened",
    "loss": "literal", "optimiser": "sgd", "start": "random", "clamp": "no",
}  # fmt: skip
SMALL = ["--base", "8", "--way", "2", "--shot", "3", "--sessions", "2"]


@pytest.fixture
def trainings(monkeypatch):
    """Counts how often an adapter is trained, quickly."""
    counted = []
    real = AdaptedHead.fit_base

    def fit_base(self, *arguments, **options):
        counted.append((self.seed, self.recipe.gamma))
        return real(self, *arguments, **options)

    monkeypatch.setattr(AdaptedHead, "fit_base", fit_base)
    return counted


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory) -> Path:
    x, y = blobs(12, 30, 12)
    train = np.arange(len(y)) % 2 == 0
    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(
        path, x_train=x[train], y_train=y[train], x_test=x[~train], y_test=y[~train],
        scale=np.float32(16),
    )  # fmt: skip
    return path


def ablate(*arguments: object):
    result = CliRunner().invoke(app, ["ablate", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def gammas(embeddings, out, values="0,1,10", *more):
    return ablate(
        "gamma", f"features:{embeddings}", "--values", values, *SMALL, "--seeds", 2,
        "--draws", "random:2", "--method", "la", "--out", out, *more,
    )  # fmt: skip


def test_gamma_trains_once_per_seed(embeddings, tmp_path, trainings):
    said = gammas(embeddings, tmp_path / "a")
    assert trainings == [(0, 1.0), (1, 1.0)]
    assert said.stderr.count("no held-out rows") == 1
    assert "no held-out rows" not in said.stdout
    assert "γ of Eq. 8 at inference" in said.stdout
    folders = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert folders == ["gamma=0", "gamma=1", "gamma=10"]
    assert json.loads((tmp_path / "a" / "gamma=0" / "config.json").read_text())["gamma"] == 0

    trainings.clear()
    alone = gammas(embeddings, tmp_path / "b", "10", "--json")
    assert len(trainings) == 2
    together = json.loads(gammas(embeddings, tmp_path / "a", "0,1,10", "--json").stdout)
    assert len(trainings) == 2, "finished cells are not trained for again"
    found = together["random"]["gamma=10"]["sessions"]
    assert found == json.loads(alone.stdout)["random"]["gamma=10"]["sessions"]
    assert found != together["random"]["gamma=0"]["sessions"]


def test_each_value_continues_where_it_was(embeddings, tmp_path, trainings):
    whole = gammas(embeddings, tmp_path / "a", "0,1,10", "--json").stdout
    records = tmp_path / "a" / "gamma=1" / "records.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join(line for line in lines if json.loads(line)["seed"] == 0))
    trainings.clear()
    assert gammas(embeddings, tmp_path / "a", "0,1,10", "--json").stdout == whole
    assert trainings == [(1, 1.0)]


def test_retraining_is_the_other_reading(embeddings, tmp_path, trainings):
    gammas(embeddings, tmp_path / "a", "1,10", "--retrain")
    assert trainings == [(0, 1.0), (1, 1.0), (0, 10.0), (1, 10.0)]


def test_json_is_all_of_stdout(embeddings, tmp_path):
    made = gammas(embeddings, tmp_path / "a", "0,1", "--json")
    assert set(json.loads(made.stdout)["random"]) == {"gamma=0", "gamma=1"}


@pytest.mark.parametrize("what", CHOICES)
def test_every_choice_changes_the_configuration(what):
    (config,) = ablation_configs(USUAL, what, [SAMPLES[what]], PROTOCOL).values()
    assert config != USUAL
    ADAPTERS["cala"].__class__(**config.adapter)  # a recipe can be made of it
    assert CHOICES[what].meaning


def test_shots_may_be_called_k():
    assert choice_name("K") == "shots"
    (config,) = ablation_configs(USUAL, "shots", ["7"], PROTOCOL).values()
    assert config.adapter == {"shots": (7,)}
    (config,) = ablation_configs(USUAL, "sessions", ["4"], PROTOCOL).values()
    assert config.adapter == {"novel": 8}


@pytest.mark.parametrize(
    ("what", "value", "fix"),
    [
        ("gamma", "big", "finite number"),
        ("gamma", "nan", "finite number"),
        ("rho", "-1", "at least 0"),
        ("tau", "0", "above 0"),
        ("shots", "0", "whole number of at least 1"),
        ("shots", "2.5", "whole number"),
        ("sessions", "-3", "at least 1"),
        ("queries", "-1", "at least 0"),
        ("inputs", "sort", "sorted"),
        ("metric", "l2", "cosine, whitened"),
    ],
)
def test_bad_values_are_named_before_anything_runs(what, value, fix):
    with refused(what, repr(value), field="values") as caught:
        ablation_configs(USUAL, what, [value], PROTOCOL)
    assert fix in caught.value.fix
    with refused("'size'", field="what", code="unknown_name"):
        ablation_configs(USUAL, "size", [value], PROTOCOL)


def test_choices_that_a_method_does_not_have():
    plain, la = (RunConfig("small", (m,), ("random:0",)) for m in ("nearest-mean", "la"))
    with refused("nearest-mean", "gamma", field="method", code="no_adapter") as caught:
        ablation_configs(plain, "gamma", ["1"], PROTOCOL)
    assert "nearest-mean+cala" in caught.value.fix
    with refused("inputs", "la", field="method", code="no_setting"):
        ablation_configs(la, "inputs", ["raw"], PROTOCOL)
    assert ablation_configs(plain, "metric", ["cosine"], PROTOCOL)["cosine"].metric == "cosine"
    with refused("mu", field="retrain"):
        ablation_configs(USUAL, "mu", ["1"], PROTOCOL, retrain=True)


@pytest.mark.filterwarnings("ignore::cala.errors.FallbackWarning")
@pytest.mark.filterwarnings("ignore::cala.errors.BaseQueryWarning")
def test_the_usual_gamma_of_a_fallback_is_las_shift():
    x, y = blobs(4, 12, 6, spread=1.5)
    fallen, la = (make_head(name, scale=4.0).fit_base(BaseData(x, y)) for name in ("cala", "la"))
    assert at_gamma(fallen, ADAPTERS["cala"].gamma).gamma == la.gamma
    assert at_gamma(fallen, 0.0).gamma == 0.0
    assert at_gamma(la, 3.0).gamma == 3.0
