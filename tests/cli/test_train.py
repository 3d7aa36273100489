"""`cala train` on a folder of photos; interrupted, as a process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cala.cli.train import TrainOptions
from cala.cli.train_session import choose_recipe
from cala.training.devices import Ranks
from cli.inside import refusal, within
from data.tiny_sets import WNIDS
from encoders.tiny import noise_set
from refusals import assert_names
from waiting import GENEROUS, wait_for

CALA = [sys.executable, "-m", "cala"]
BASE = ["--base", "2", "--test", "0.3", "--holdout", "2"]
QUICK = ["--recipe", "fast-cifar100", "--epochs", "2", "--batch", "8", "--threads", "1"]


def start(*arguments: object, cache: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*CALA, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CALA_CACHE": str(cache), "COLUMNS": "80"},
    )


def cala(*arguments: object, cache: Path) -> tuple[int, str, str]:
    done = within(*arguments, CALA_CACHE=cache)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Three classes of ten photos of many shapes."""
    root = tmp_path_factory.mktemp("photos")
    draw = np.random.default_rng(0)
    for label, name in enumerate(("ant", "bee", "owl éü")):
        (root / name).mkdir()
        for number in range(10):
            height, width = draw.integers(20, 130, 2)
            pixels = draw.integers(0, 256, (height, width, 3)).astype(np.uint8)
            pixels[..., label] //= 4
            Image.fromarray(pixels).save(root / name / f"{number}.jpg")
    return root


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def trained(photos, cache, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("out") / "base"
    code, printed, error = cala("train", photos, "-o", out, *BASE, *QUICK, cache=cache)
    assert code == 0, error
    assert str(out / "encoder.safetensors") in printed
    assert "epoch   2/2" in error
    assert "held-out" in error
    return out


def test_three_commands_on_own_photos(photos, cache, trained, tmp_path, inside):
    """Train, encode, run: the README's way."""
    file = tmp_path / "mine.npz"
    encoder = trained / "encoder.safetensors"
    encode = ("encode", photos, "--encoder", encoder, "--test", 0.5, "-o", file)
    assert_names(refusal(*encode, CALA_CACHE=cache), encoder, code="leakage")
    code, printed, error = cala(
        "encode", photos, "--encoder", encoder, "--test", 0.3, "--base", 2, "--fakes", 1,
        "-o", file, cache=cache,
    )  # fmt: skip
    assert code == 0, error
    assert "21 training and 9 test images, 3 classes, 64 dimensions" in printed
    with np.load(file) as content:
        assert content["holdout"].sum() == 4
        assert content["class_names"].tolist() == ["ant", "bee", "owl éü"]
    few = ("--base", 1, "--way", 1, "--shot", 3)
    assert_names(refusal("run", f"features:{file}", *few), "(bee)", field="base", code="leakage")
    code, printed, error = cala(
        "run", f"features:{file}", "--base", 2, "--way", 1, "--shot", 3, "--sessions", 1,
        "--methods", "nearest-mean", "--draws", "random:2", "--out", tmp_path / "run", cache=cache,
    )  # fmt: skip
    assert code == 0, error
    assert "nearest-mean" in printed


@pytest.mark.system
def test_sigterm_writes_a_checkpoint_and_resume_ends_the_same(photos, cache, trained, tmp_path):
    out = tmp_path / "stopped"
    command = ["train", photos, "-o", out, *BASE, *QUICK]
    process = start(*command, "--minutes", 0, cache=cache)
    wait_for(lambda: (out / "checkpoint.safetensors").exists() or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=GENEROUS)
    if process.returncode != 0:  # it may have been quicker than the signal
        assert process.returncode == 130, error
        assert "--resume" in error
        assert_names(refusal(*command, CALA_CACHE=cache), out, code="already_begun")
        code, _, error = cala(*command, "--resume", cache=cache)
        assert code == 0, error
    assert (out / "encoder.safetensors").read_bytes()[-500:] == (
        trained / "encoder.safetensors"
    ).read_bytes()[-500:]
    lines = (out / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2]


def test_an_unreadable_image_is_named_and_can_be_left_out(photos, cache, tmp_path):
    root = tmp_path / "photos"
    for path in photos.rglob("*.jpg"):
        target = root / path.relative_to(photos)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    bad = root / "bee" / "4.jpg"
    bad.write_bytes(bad.read_bytes()[:100])
    found = refusal("train", root, "-o", tmp_path / "a", *QUICK, CALA_CACHE=cache)
    assert_names(found, "bee/4.jpg", code="bad_image")
    code, _, error = cala("train", root, "-o", tmp_path / "a", "--skip-bad", *QUICK, cache=cache)
    assert code == 0, error
    assert "left out: bee/4.jpg" in error


@pytest.mark.parametrize(
    ("option", "value", "field", "named"),
    [
        ("--recipe", "fast-cifar10", "recipe", "'fast-cifar10'"),
        ("--encoder", "resnet50", "architecture", "'resnet50'"),
        ("--batch", "500", "batch", "500"),
        ("--base", "1", "base", "1"),
        ("--base", "9", "base", "9"),
        ("--holdout", "10", "holdout", "class ant"),
        ("--device", "abacus", "device", "'abacus'"),
        ("--precision", "double", "precision", "'double'"),
        ("--selection", "test", "selection", "'test'"),
        ("--init", "nowhere.pth", "path", "nowhere.pth"),
        ("--test", "1.5", "test", "1.5"),
        ("--set", "pad=-3", "pad", "-3"),
    ],
)
def test_bad_options(photos, cache, tmp_path, option, value, field, named):
    found = refusal("train", photos, "-o", tmp_path / "x", option, value, CALA_CACHE=cache)
    assert_names(found, named, field=field)
    assert not (tmp_path / "x").exists()


def test_folders_named_after_wnids(photos, tmp_path, inside, monkeypatch, trained):
    """They are photos, and `--as` says what else they are."""
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "birds"
    for path, wnid in zip(sorted(photos.iterdir()), WNIDS, strict=True):
        shutil.copytree(path, root / wnid)
    target = ["-o", tmp_path / "a.npz"]
    fine = ["--encoder", "resnet20-cifar100", "--fakes", 0]
    code, printed, error = inside("encode", root, "--test", 0.3, *fine, *target)
    assert code == 0, error
    assert "3 classes" in printed
    assert "note:" not in error
    code, _, error = inside("encode", root, *fine, *target)
    assert code == 0
    assert "--test 0.2" in error
    for command, more in (("encode", target), ("train", target), ("run", ())):
        found = refusal(command, root, "--test", 0.3, "--as", "mini_imagenet", *more)
        assert_names(found, "mini_imagenet", field="holdout")
    found = refusal("run", root, "--encoder", "resnet20-cifar100")
    assert_names(found, root, field="test", code="no_test_images")
    assert "--test 0.2" in found.fix


def test_cache_info_and_clear(cache, trained):
    code, printed, _ = cala("cache", "info", "--json", cache=cache)
    assert code == 0
    assert "memos" in json.loads(printed)["contents"]
    assert "memos" in cala("cache", "info", cache=cache)[1]
    assert "unknown kind of cache 'x'" in cala("cache", "clear", "x", cache=cache)[2]
    code, printed, _ = cala("cache", "clear", "--yes", cache=cache)
    assert code == 0
    assert "empty" in cala("cache", "info", cache=cache)[1]


def test_encoders_are_listed(cache):
    code, printed, _ = cala("encoders", cache=cache)
    assert code == 0
    for name in ("efficientnet-lite0", "resnet20-cifar100", "timm:…", "resnet12"):
        assert name in printed
    assert max(map(len, printed.splitlines())) <= 80
    found = json.loads(cala("encoders", "--json", cache=cache)[1])
    assert set(found) == {"encoders", "loaders", "architectures"}


def test_as_a_method(photos, tmp_path):
    """A system's own base session, from an ordinary one, to its head in a run."""
    first = ["train", photos, "-o", tmp_path / "first", *BASE, *QUICK]
    assert cala(*first, cache=tmp_path)[0] == 0
    own = ["train", photos, "-o", tmp_path / "cec", *BASE, *QUICK, "--method", "cec"]
    assert_names(refusal(*own, CALA_CACHE=tmp_path), "cec", field="init", code="needs_init")
    found = refusal(*own[:-1], "cek", CALA_CACHE=tmp_path)
    assert_names(found, "'cek'", code="unknown_name")
    assert "'cec'?" in found.fix
    both = [*own, "--init", tmp_path / "first", "--budget", "0.001"]
    assert_names(refusal(*both, CALA_CACHE=tmp_path), "--epochs", field="budget")
    at = both.index("--epochs")
    own = [*both[:at], *both[at + 2 :]]
    code, out, error = cala(*own, cache=tmp_path)
    assert code == 0, error
    run = ["run", photos, "--test", "0.3", "--base", "2", "--way", "1", "--shot", "2"]
    run += ["--encoder", tmp_path / "first", "--encoder", f"cec={tmp_path / 'cec'}"]
    run += ["--methods", "nearest-mean,cec,cec+la", "--draws", "random:2", "--fakes", "1"]
    run += ["--out", tmp_path / "run", "--json", "--no-report"]
    code, out, error = cala(*run, cache=tmp_path)
    assert code == 0, error
    assert list(json.loads(out)["random"]) == ["nearest-mean", "cec", "cec+la"]


def test_a_grid_has_a_folder_for_each_method_and_seed():
    given = TrainOptions(
        Path("photos"), Path("x"), method="alice, fact,alice", views=2, seed=3, seeds=2
    )
    assert [
        (name, job.method, job.seed, job.out.as_posix()) for name, job in given.jobs().items()
    ] == [
        ("alice, seed 3", "alice", 3, "x/alice/seed-3"),
        ("alice, seed 4", "alice", 4, "x/alice/seed-4"),
        ("fact, seed 3", "fact", 3, "x/fact/seed-3"),
        ("fact, seed 4", "fact", 4, "x/fact/seed-4"),
    ]
    alone = replace(given, method="cec", seeds=1)
    assert list(alone.jobs().values()) == [alone]
    mixed = replace(given, method="savc,fact", seeds=1).jobs().values()
    assert [job.views for job in mixed] == [2, None]


def test_a_grid_in_this_process(photos, cache, tmp_path):
    out = tmp_path / "grid"
    options = (*BASE, *QUICK, "--method", "fact,alice", "--epochs", 1)
    code, _, error = cala("train", photos, "-o", out, *options, cache=cache)
    assert code == 0, error
    assert (out / "fact" / "encoder.safetensors").exists()
    assert (out / "alice" / "encoder.safetensors").exists()
    found = refusal("train", photos, "-o", out, *options, CALA_CACHE=cache)
    assert_names(found, out, field="resume", code="already_begun")


@pytest.mark.parametrize(
    ("grid", "told", "named"),
    [
        (["--method", "alice,facd"], {"code": "unknown_name"}, "'facd'"),
        (["--method", "alice,cec"], {"field": "init", "code": "needs_init"}, "cec"),
        (["--method", "alice,fact", "--views", "2"], {"field": "views"}, "savc"),
        (["--method", ","], {"field": "method"}, "--method ,"),
    ],
)
def test_a_grid_is_checked_before_it_begins(photos, cache, tmp_path, grid, told, named):
    out = tmp_path / "grid"
    found = refusal("train", photos, "-o", out, *BASE, *QUICK, *grid, CALA_CACHE=cache)
    assert_names(found, named, **told)
    assert not out.exists()


def test_the_launcher_of_several_processes_does_not_choose_the_threads(
    photos, cache, tmp_path, monkeypatch
):
    """With another number of threads the weights would be others."""
    seen = []

    def ranks(*options: object) -> Ranks:
        torch.set_num_threads(2)  # as lightning-fabric does
        return Ranks()

    monkeypatch.setattr("cala.training.devices.make_ranks", ranks)
    monkeypatch.setattr(
        "cala.training.session.train_base",
        lambda session, **options: seen.append(torch.get_num_threads()) or tmp_path,
    )
    before = torch.get_num_threads()
    try:
        assert cala("train", photos, "-o", tmp_path / "out", *QUICK, cache=cache)[0] == 0
    finally:
        torch.set_num_threads(before)
    assert seen == [1]


@pytest.mark.parametrize(
    ("kind", "recipe", "init", "expected"),
    [
        ("cub200", None, "efficientnet-lite0", "adapt-cub200"),
        ("folder", None, "efficientnet-lite0", "adapt-photos"),
        ("folder", None, "base/encoder.safetensors", "fast-photos"),
        ("cifar100", None, "resnet20-cifar100", "fast-cifar100"),
        ("folder", "fast-cifar100", "efficientnet-lite0", "fast-cifar100"),
    ],
)
def test_the_usual_recipe(kind, recipe, init, expected):
    images = replace(noise_set([1], [1]), name=kind)
    options = TrainOptions(Path("photos"), Path("x"), recipe=recipe, init=init)
    assert choose_recipe(options, images).name == expected
