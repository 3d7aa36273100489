"""Folders of shards where a user names embeddings."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cala.data.shard_writer import ShardWriter
from cli.inside import inside, refusal  # noqa: F401
from refusals import assert_names


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(14, 8))
    path = tmp_path / "birds.shards"
    with ShardWriter(path, dim=8, classes=tuple(f"bird {i:02d}" for i in range(14))) as writer:
        for split in ("train", "train", "test"):
            y = np.arange(14).repeat(10)
            writer.write(None, centres[y] + rng.normal(size=(140, 8)) / 2, y, split)
        writer.finish()
    return path


def test_run(inside, folder, tmp_path):  # noqa: F811
    out = tmp_path / "run"
    code, printed, said = inside(
        "run", f"features:{folder}", "--base", "10", "--way", "2", "--methods", "nearest-mean,la",
        "--draws", "random:2", "--out", out, "--no-report",
    )  # fmt: skip
    assert code == 0, said
    assert "nearest-mean" in printed
    config = json.loads((out / "config.json").read_text())
    assert config["dataset"] == "birds"
    assert config["embeddings"]["source"] == "birds.shards"
    assert config["protocol"]["sessions"] == 2
    records = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    assert len([r for r in records if "session" in r]) == 2 * 2 * 3


def test_a_method_that_needs_memory(folder, tmp_path):
    arguments = ("--base", "10", "--way", "2", "--draws", "random:1", "--out", tmp_path / "run")
    found = refusal("run", f"features:{folder}", "--methods", "gkeal", *arguments)
    assert_names(found, "gkeal", code="not_streaming")


def test_check(inside, folder):  # noqa: F811
    code, printed, _ = inside("data", "check", folder)
    assert code == 0
    rows = ("14 classes, 8 dimensions (float16)", "280 training rows", "file names: none")
    for line in (*rows, "in order"):
        assert line in printed
    damaged = folder / "shard-00001.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    code, printed, _ = inside("data", "check", folder)
    assert code == 1
    assert "shard-00001.safetensors" in printed
