"""`cala data check` on embeddings and on images."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cala.cli import app
from cala.data.progress import progress_to, track
from data.embedding_arrays import write
from data.tiny_sets import folder, mini_imagenet


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> Path:
    place = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("CALA_CACHE", str(place))
    return place


def check(*arguments: object):
    return CliRunner().invoke(app, ["data", "check", *map(str, arguments)])


def test_embeddings(tmp_path):
    path = write(
        tmp_path,
        holdout=np.arange(40) < 5,
        class_names=np.array(["ant", "bee", "cat", "dog"]),
        names_train=np.array([f"{i}.jpg" for i in range(40)]),
        provenance=np.array(json.dumps({"encoder": "resnet20"})),
        other=np.zeros(3),
    )
    found = check(path)
    assert found.exit_code == 0, found.output
    for line in (
        "4 classes, 3 dimensions (float16)",
        "40 training rows (10 per class)",
        "8 test rows (2 per class)",
        "scale: 16",
        "held-out rows: 5 in 1 class",
        "fake classes: 5 of 6 images",
        "class names: ant, bee, cat, dog",
        "file names: train",
        "encoder: resnet20",
        "ignored, unknown to cala: other",
        "in order",
    ):
        assert f"  {line}\n" in found.stdout, line
    assert check(f"features:{path}").stdout == found.stdout
    report = json.loads(check(path, "--json").stdout)
    assert (report["ok"], report["classes"], report["fakes"]) == (True, 4, [5, 6])


def test_embeddings_that_cannot_be_used(tmp_path):
    bad = check(write(tmp_path, scale=np.float32(-1)))
    assert bad.exit_code == 1
    assert "error: " in bad.stdout
    assert "scale is -1.0" in bad.stdout
    gone = check(f"features:{tmp_path}/nothing.npz", "--json")
    assert gone.exit_code == 1
    assert "nothing.npz" in json.loads(gone.stdout)["error"]
    assert "a.csv" in check(tmp_path / "a.csv", "--as", "features").stdout


def test_where_embeddings_come_from_is_readable(tmp_path):
    about = {
        "recipe": {"name": "fast", "lr": 0.1, "transform": {"size": 32, "mean": [0.5, 0.4, 0.3]}},
        "classes": [f"class {i}" for i in range(60)],
        "init": None,
    }
    path = write(tmp_path, provenance=np.array(json.dumps({"tta": "none", "about": about})))
    printed = check(path).stdout
    assert not set("{}'") & set(printed.split("\n", 1)[1])
    for line in (
        "  about: classes=class 0/class 1/class 2/class 3/class 4/… (60), init=none",
        "    recipe: name=fast, lr=0.1",
        "      transform: size=32, mean=0.5/0.4/0.3",
    ):
        assert f"{line}\n" in printed
    assert max(map(len, printed.split("\n")[1:])) <= 80


def test_few_members(tmp_path):
    path = write(tmp_path, fake=None, pairs=None, scale=None)
    text = check(path).stdout
    for line in ("scale: not given", "held-out rows: not given", "fake classes: none"):
        assert f"  {line}" in text
    assert "file names: none" in text


@pytest.mark.parametrize("make", [folder, mini_imagenet])
def test_images_too_large_are_refused_in_every_set(tmp_path, make):
    root = make(tmp_path / "set")
    assert check(root).exit_code == 0
    small = check(root, "--max-pixels", 479)
    assert small.exit_code == 1
    assert "24×20 pixels" in small.stdout
    assert check(root, "--max-pixels", 480).exit_code == 0


def test_progress_is_told_and_stays_off_other_outputs(tmp_path):
    from cala.data.check import check_data

    heard = []
    with progress_to(lambda *step: heard.append(step)):
        check_data(folder(tmp_path / "set"))
    assert ("decoding", 18, 18) in heard
    assert ("reading", 18, 18) in heard
    assert heard[0][1] == 1
    assert list(track("alone", [1, 2], 2)) == [1, 2]
    quiet = check(tmp_path / "set", "--json")
    assert json.loads(quiet.stdout)["ok"] is True
    assert quiet.stderr == ""


@pytest.mark.system
def test_a_cache_that_cannot_be_used_is_a_note(tmp_path):
    (tmp_path / "file").write_text("in the way")
    photos = folder(tmp_path / "photos")
    command = [sys.executable, "-m", "cala", "data", "check", str(photos)]
    env = {**os.environ, "CALA_CACHE": str(tmp_path / "file")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "note: the cache" in done.stderr
    assert "Warning" not in done.stderr
