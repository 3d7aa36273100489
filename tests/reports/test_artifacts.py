"""Artifacts hold what the head would say."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cala import storage
from cala.reports.runs import read_artifact

METHODS = ("nearest-mean", "la", "nearest-mean+cala-plus")


@pytest.fixture(params=METHODS)
def artifact(request, real_run):
    return read_artifact(real_run / "artifacts" / f"{request.param}.safetensors")


def test_parts_agree(artifact, real_run):
    counts = np.zeros((12, 12), int)
    np.add.at(counts, (artifact["labels"], artifact["predicted_after"]), 1)
    assert (counts == artifact["confusion"]).all()
    again = np.where(artifact["labels"] < 8, artifact["base_right"], artifact["novel_right"])
    chosen = np.where(artifact["switch"] > 0, artifact["labels"] < 8, artifact["labels"] >= 8)
    right = artifact["predicted_after"] == artifact["labels"]
    assert (right == (again & chosen)).mean() > 0.99  # but for ties
    assert artifact["sample_logits"].shape == (len(artifact["sample"]), 12)
    assert artifact["beta_draws"].shape == artifact["similarity_draws"].shape == (3, 4)
    assert artifact.meta["draws"] == ["random:0", "random:1", "random:2"]
    np.testing.assert_allclose(artifact["beta_draws"][0], artifact["beta"][8:], atol=1e-6)
    mean = artifact["similarity"].mean(1)
    np.testing.assert_allclose(artifact["similarity_draws"][0], mean, atol=1e-6)


def test_the_sweep_over_gamma_meets_the_records(artifact, real_run):
    method = artifact.meta["method"]
    lines = [json.loads(x) for x in (real_run / "records.jsonl").read_text().splitlines()]
    mine = [r for r in lines if r["method"] == method and r["draw"] == artifact.draw]
    accuracy = [r["metrics"]["accuracy"] for r in sorted(mine, key=lambda r: r["session"])]
    trained = 1.0 if artifact.meta["gamma"] is None else artifact.meta["gamma"]
    at = int(np.argmin(np.abs(artifact["gamma"] - trained)))
    np.testing.assert_allclose(artifact["gamma_accuracy"][at], accuracy, atol=1e-6)
    without = (artifact["predicted_before"] == artifact["labels"]).mean()
    assert artifact["gamma_accuracy"][0, -1] == pytest.approx(without, abs=1e-6)


def test_the_trade_off_has_the_recorded_area(artifact, real_run):
    lines = [json.loads(x) for x in (real_run / "records.jsonl").read_text().splitlines()]
    wanted = next(
        r["metrics"]["ausuc"] for r in lines
        if r["method"] == artifact.meta["method"] and r["draw"] == artifact.draw
        and r["session"] == 2
    )  # fmt: skip
    assert artifact.trade_off().area == pytest.approx(wanted, abs=1e-6)


def test_meta_names_host_adapter_and_metric(real_run):
    path = real_run / "artifacts" / "nearest-mean+cala-plus.safetensors"
    meta, _ = storage.read(path, "artifact")
    assert (meta["host"], meta["adapter"], meta["metric"]) == (
        "nearest-mean",
        "cala-plus",
        "cosine",
    )
    assert path.stat().st_mode & 0o777 == (real_run / "config.json").stat().st_mode & 0o777
