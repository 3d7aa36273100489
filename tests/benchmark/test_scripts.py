"""The scripts as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent.parent / "benchmarks"


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k != "CALA_DATA"}
    return subprocess.run(
        [sys.executable, str(SCRIPTS / script), *arguments],
        capture_output=True,
        text=True,
        env={**clean, "OMP_NUM_THREADS": "1", "COLUMNS": "80", **environment},
        timeout=300,
        check=False,
    )


def test_digits(tmp_path):
    out = tmp_path / "numbers.json"
    done = run("digits.py", "--draws", "3", "--json", str(out))
    assert done.returncode == 0, done.stderr
    for name in ("nearest-mean", "la", "cala", "cala-plus", "AUSUC", "on the same draws"):
        assert name in done.stdout
    numbers = json.loads(out.read_text())
    last = {name: found["summary"]["last"]["mean"] for name, found in numbers["random"].items()}
    assert last["cala-plus"] > last["nearest-mean"]
    assert f"{last['cala-plus']:.1f}" in done.stdout


def test_cifar_on_dev(tmp_path, cifar_path):
    out = tmp_path / "numbers.json"
    done = run(
        "cifar100_features.py", "--data", str(cifar_path), "--split", "dev", "--draws", "2",
        "--json", str(out),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "…" not in done.stdout
    numbers = json.loads(out.read_text())
    assert numbers["split"] == "dev"
    hm, area = (
        {name: found["summary"][c]["mean"] for name, found in numbers["random"].items()}
        for c in ("hm", "ausuc")
    )
    assert hm["cala cosine"] > hm["nearest-mean cosine"]
    assert area["cala-plus whitened"] > area["cala cosine"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give --data FILE, or set CALA_DATA"),
        (("--data", "nowhere.npz"), "error: no embeddings file at nowhere.npz"),
        (("--split", "train"), "invalid choice: 'train'"),
        (("--data", "x.npz", "--draws", "0"), "--draws is 0: give at least 1"),
    ],
)
def test_bad_calls_are_named_without_a_traceback(arguments, message):
    done = run("cifar100_features.py", *arguments)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("script", ["digits.py", "cifar100_features.py", "speed.py"])
def test_help_teaches(script):
    done = run(script, "--help")
    assert done.returncode == 0
    assert "--json" in done.stdout
