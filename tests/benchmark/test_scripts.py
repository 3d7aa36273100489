"""The scripts as a user runs them."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from cli.inside import called
from waiting import GENEROUS

SCRIPTS = Path(__file__).parent.parent.parent / "benchmarks"


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k != "CALA_DATA"}
    return subprocess.run(
        [sys.executable, str(SCRIPTS / script), *arguments],
        capture_output=True,
        text=True,
        env={**clean, "OMP_NUM_THREADS": "1", "COLUMNS": "80", **environment},
        timeout=GENEROUS,
        check=False,
    )


def tried(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Within this process: enough for what is refused or told before any work."""
    path = str(SCRIPTS / script)
    with patch.object(sys, "path", [str(SCRIPTS), *sys.path]), patch.dict(os.environ):
        os.environ.pop("CALA_DATA", None)
        return called(lambda: runpy.run_path(path, run_name="__main__"), [path, *arguments])


@pytest.mark.system
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


@pytest.mark.system
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
        (("--data", "x.npz", "--draws", "0"), "argument --draws: 0 is too few: give at least 1"),
        (("--draws", "few"), "argument --draws: 'few' is no whole number"),
        (("--json", "/nowhere/at/all.json"), "all.json cannot be written (No such file"),
        (("--json", "."), "argument --json: . is a folder"),
    ],
)
@pytest.mark.parametrize("script", ["cifar100_features.py", "ablations.py"])
def test_bad_calls_are_named_without_a_traceback(script, arguments, message):
    done = tried(script, *arguments)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("speed.py", ("--data", "/nope.npz"), "error: no embeddings file at /nope.npz"),
        ("cifar100_features.py", ("--split", "train"), "invalid choice: 'train'"),
        ("speed.py", ("--threads", "0"), "argument --threads: 0 is too few"),
        ("speed.py", ("--json", "/nowhere/at/all.json"), "cannot be written"),
        ("digits.py", ("--json", "/nowhere/at/all.json"), "cannot be written"),
        ("digits.py", ("--draws", "-1"), "argument --draws: -1 is too few"),
        ("ablations.py", ("--draws", "-1"), "argument --draws: -1 is too few"),
        ("ablations.py", ("--only", "xyz"), "--only 'xyz': no block has it"),
    ],
)
def test_bad_values_are_refused_before_the_work(script, arguments, message):
    done = tried(script, *arguments)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "script", ["ablations.py", "cifar100_features.py", "digits.py", "onnx_speed.py", "speed.py"]
)
def test_help_teaches(script):
    done = tried(script, "--help")
    assert done.returncode == 0
    assert "--json" in done.stdout


@pytest.mark.parametrize("dataset", ["cifar100", "mini_imagenet", "cub200"])
def test_full_length_has_every_system_and_only_options_that_exist(dataset):
    """What a GPU machine is told to run: every base session, and one run of all of them."""
    from typer.main import get_command

    from cala.cli import app
    from cala.heads import HEADS
    from cala.systems.published import published
    from cala.systems.registry import SYSTEMS

    init = ("--init", "resnet18.pth") if dataset == "cub200" else ()
    done = tried("full_length.py", dataset, "--data", "images", "--out", "bases", *init)
    assert done.returncode == 0, done.stderr
    about = [line for line in done.stdout.splitlines() if line.startswith("# ")]
    lines = [line.split() for line in done.stdout.splitlines() if line not in about]
    assert len(about) == len(lines)
    for name in SYSTEMS:
        numbers = published(name, dataset)
        line = next(line for line in about if line.startswith(f"# {name}: "))
        for key, value in {**numbers.base, **numbers.loss}.items():
            assert f", {key} {value}" in line
        assert f"encoder {numbers.encoder}," in line
    assert {w[w.index("--method") + 1] for w in lines if "--method" in w} == set(SYSTEMS)
    group = get_command(app)
    for words in lines:
        command = group.commands[words[1]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {w for w in words if w.startswith("-")} <= known
    whole = lines[-1]
    assert "--full-sessions" in whole
    methods = whole[whole.index("--methods") + 1].split(",")
    assert set(HEADS) <= set(methods)
    assert {f"{host}+cala-plus" for host in HEADS} <= set(methods)
    short = tried("full_length.py", dataset, "--epochs", "1", *init).stdout
    assert short.count("--epochs 1") == len(lines) - 1
    assert "--full-sessions" not in short
    assert "no system nope" in tried("full_length.py", dataset, "--systems", "nope", *init).stderr
    if init:
        assert "give --init FILE" in tried("full_length.py", dataset).stderr
