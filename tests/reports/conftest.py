"""Runs and reports that several tests share."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from cala.benchmark.config import RunConfig
from cala.benchmark.execute import execute
from cala.benchmark.sources import Source
from cala.benchmark.task import BenchTask, parse_draws
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol
from cala.reports.build import make_report
from problems import blobs
from reports.make_run import make_run

PROTOCOL = Protocol(name="small", base=8, way=2, shot=3, sessions=2)
METHODS = ("nearest-mean", "la", "nearest-mean+cala-plus")


@pytest.fixture(scope="session")
def real_run(tmp_path_factory) -> Path:
    """A run that was really run, with its own artifacts and summary."""
    x, y = blobs(12, 30, 12, spread=1.2)
    x, train = x.astype(np.float32), np.arange(len(y)) % 2 == 0
    data = Embeddings(x[train], y[train], x[~train], y[~train])
    config = RunConfig("small", METHODS, tuple(parse_draws("random:3")))
    out = tmp_path_factory.mktemp("runs") / "real"
    execute(config, BenchTask(Source(data, "small.npz"), PROTOCOL), out=out)
    return out


@pytest.fixture(scope="session")
def real_report(real_run) -> Path:
    """The folder of its report."""
    made = make_report([real_run], real_run / "report")
    assert made.notes == []
    return made.page.parent


@pytest.fixture(scope="session")
def summary(real_run) -> dict:
    return json.loads((real_run / "summary.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("whole") / "run", ("nearest-mean", "cala"), draws=2)


@pytest.fixture
def run(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"
