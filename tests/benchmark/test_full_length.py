"""Every system's commands at full length, gone through with one epoch on a small set."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cala.data.protocol import load_protocol
from cala.heads import HEADS

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "full_length.py"


def small_cifar(root: Path) -> Path:
    """The layout of CIFAR-100: all classes, nine training and two test images each."""
    rng = np.random.default_rng(0)
    names = load_protocol("cifar100").expected.classes
    colours = rng.integers(30, 226, (100, 3, 1, 1))
    top = root / "cifar-100-python"
    top.mkdir(parents=True)
    for part, each in (("train", 9), ("test", 2)):
        labels = np.repeat(np.arange(100), each)
        noise = rng.integers(-30, 30, (len(labels), 3, 32, 32))
        data = (colours[labels] + noise).astype(np.uint8).reshape(len(labels), 3072)
        content = {b"data": data, b"fine_labels": labels.tolist()}
        (top / part).write_bytes(pickle.dumps(content, protocol=2))
    meta = {b"fine_label_names": [name.encode() for name in names]}
    (top / "meta").write_bytes(pickle.dumps(meta, protocol=2))
    return root


@pytest.mark.long
def test_every_command_of_the_full_length_works(tmp_path):
    data, out = small_cifar(tmp_path / "cifar"), tmp_path / "bases"
    extra = "--encoder resnet20 --holdout 1 --threads 1 --quiet --device cpu"
    words = ["cifar100", "--data", str(data), "--out", str(out), "--run", "--epochs", "1"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words, "--extra", extra],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CALA_CACHE": str(tmp_path / "cache")},
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads((out / "run" / "summary.json").read_text())
    methods = summary["config"]["methods"]
    assert set(HEADS) <= set(methods)
    assert set(summary["random"]) == set(methods)
    for name, found in summary["random"].items():
        assert found["summary"]["last"]["mean"] > 1.0, name  # chance: 1 %
