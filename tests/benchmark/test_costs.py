"""What methods cost: measured per cell, kept over kills, summed up per method."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from cala.benchmark.config import RunConfig
from cala.benchmark.costs import Cost, head_bytes, read_costs, summarise_costs
from cala.benchmark.execute import execute
from cala.benchmark.sources import Source
from cala.benchmark.task import BenchTask
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol
from cala.heads import BaseData, make_head
from cala.heads.nearest_mean import NearestMean
from problems import blobs

PROTOCOL = Protocol(name="small", base=8, way=2, shot=3, sessions=2)
CONFIG = RunConfig("small", ("nearest-mean",), ("random:0", "random:1"), seeds=(0, 1))


def data() -> Embeddings:
    x, y = blobs(12, 30, 12)
    x, train = x.astype(np.float32), np.arange(len(y)) % 2 == 0
    return Embeddings(x[train], y[train], x[~train], y[~train])


def random_rows(n: int, dim: int, classes: int) -> BaseData:
    rows = np.random.default_rng(0).normal(size=(n, dim)).astype(np.float32)
    return BaseData(rows, np.arange(n) % classes)


def run(out):
    execute(CONFIG, BenchTask(Source(data(), "small.npz"), PROTOCOL), out=out)
    return json.loads((out / "costs.json").read_text())["cost"]


def test_a_run_keeps_what_its_cells_took(tmp_path, monkeypatch):
    real = NearestMean.add

    def add(self, features, labels):
        time.sleep(0.02)
        return real(self, features, labels)

    monkeypatch.setattr(NearestMean, "add", add)
    found = run(tmp_path)["nearest-mean"]
    costs = read_costs((tmp_path / "costs.jsonl").read_text())
    assert {c.cell for c in costs} == {
        ("nearest-mean", draw, seed) for draw in CONFIG.draws for seed in CONFIG.seeds
    }
    assert all(len(c.session_seconds) == 2 and min(c.session_seconds) >= 0.02 for c in costs)
    assert found["session_seconds"] >= 0.02
    assert found["fit_seconds"] > 0
    head = make_head("nearest-mean").fit_base(random_rows(36, 12, classes=12))
    assert found["head_bytes"] == head_bytes(head), "of all twelve classes"


def test_bytes_are_those_of_the_arrays_that_are_saved():
    head = make_head("nearest-mean", scale=16.0).fit_base(random_rows(9, 4, classes=3))
    arrays = head.state()["tensors"].values()
    assert head_bytes(head) == sum(len(array.tobytes()) for array in arrays) > 0


def test_costs_survive_a_torn_line_and_the_numbers_do_not_know(tmp_path):
    whole = run(tmp_path)
    kept = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    path = tmp_path / "costs.jsonl"
    lines = path.read_text()
    path.write_text(lines + '{"method": "nearest-mean", "dr')
    assert run(tmp_path) == whole
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.name in kept} == kept
    path.unlink()  # a run of an older version
    assert run(tmp_path) == {}
    assert (tmp_path / "records.jsonl").read_bytes() == kept["records.jsonl"]


@pytest.mark.parametrize("line", ["", "null", "[1]", "{}", '{"method": []}', "\x00", "NaN"])
def test_lines_that_are_no_costs(line):
    good = Cost("la", "random:0", 0, 1.0, [0.5], 8)
    assert read_costs(f"{line}\n{good.line()}") == [good]


def test_summary():
    costs = [
        Cost("la", "random:1", 0, 2.0, [1.0, 3.0], 20),
        Cost("la", "random:0", 0, 9.0, [9.0, 9.0], 90),  # an earlier try at the same cell
        Cost("la", "random:0", 0, 2.0, [2.0, 2.0], 10),
        Cost("la", "random:0", 1, 4.0, [4.0, 6.0], 10),
        Cost("la", "random:9", 0, 70.0, [70.0], 70),  # no records: killed before they were written
    ]
    draws = ["random:0", "random:1"]
    cells = {("la", draw, seed) for draw in draws for seed in (0, 1)}
    assert summarise_costs(costs, ["la", "cala"], draws, cells) == {
        "la": {"fit_seconds": 3.0, "session_seconds": 3.0, "head_bytes": 10}
    }
