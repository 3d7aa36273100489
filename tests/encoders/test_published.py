"""Encoders laid out as release assets, fetched from a folder or a server, and used by name."""

from __future__ import annotations

import json
import runpy
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from cala.encoders import ARCHITECTURES, load_encoder
from cala.encoders import published as module
from cala.encoders.published import get_encoder, read_index
from cala.encoders.registry import fetched, weights_file
from cala.encoders.transform import Transform
from cala.encoders.weights import save_encoder
from cala.files import sha256
from cala.training.recipes import RECIPES
from cli.inside import within
from data.test_download import server
from refusals import refused

__all__ = ["server"]
SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "release_assets.py"
NAME = "resnet20-mine"


@pytest.fixture
def trained(tmp_path) -> Path:
    """A folder as `cala train` leaves it."""
    folder = tmp_path / "base"
    folder.mkdir()
    torch.manual_seed(0)
    recipe = {"name": "fast-cifar100", "encoder": "resnet20"}
    about = {"recipe": recipe, "dataset": "cifar100", "epochs": 60, "minutes": 98.4}
    save_encoder(
        folder / "encoder.safetensors",
        ARCHITECTURES["resnet20"](),
        architecture="resnet20",
        transform=Transform(32, 32),
        about={**about, "validation": 0.738},
    )
    return folder


@pytest.fixture
def run(tmp_path) -> Path:
    """A folder of `cala run`."""
    sessions = {"accuracy": [{"mean": 71.123}, {"mean": 60.0}]}
    found = {"canonical": {"nearest-mean": {"sessions": sessions}}}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text(json.dumps(found))
    return tmp_path / "run"


def lay_out(monkeypatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, words)])
    monkeypatch.syspath_prepend(SCRIPT.parent)
    runpy.run_path(str(SCRIPT), run_name="__main__")


def test_from_training_to_a_name(trained, run, server, tmp_path, monkeypatch):
    folder, url = server
    lay_out(monkeypatch, folder, f"{NAME}={trained}", "--run", f"{NAME}={run}")
    entry = json.loads((folder / "index.json").read_text())["encoders"][NAME]
    file = trained / "encoder.safetensors"
    assert (entry["sha256"], entry["bytes"]) == (sha256(file), file.stat().st_size)
    assert (entry["dataset"], entry["recipe"]) == ("cifar100", "fast-cifar100")
    assert (entry["hours"], entry["held_out"], entry["session_0"]) == (1.6, 73.8, 71.1)
    assert entry["licence"]
    with refused(code="unknown_name"):
        load_encoder(NAME)
    for source in (str(folder), f"{url}/"):
        path = get_encoder(NAME, source)
        assert path.read_bytes() == file.read_bytes()
        assert weights_file(NAME) == path
        encoder = load_encoder(NAME)
        assert encoder.name == NAME
        images = np.zeros((1, 32, 32, 3), np.uint8)
        np.testing.assert_array_equal(encoder(images), load_encoder(trained)(images))
        (folder / f"{NAME}.safetensors").unlink()
        assert get_encoder(NAME, source) == path  # it is there, so nothing is fetched
        path.unlink()
        lay_out(monkeypatch, folder, f"{NAME}={trained}")
    assert fetched(NAME) is None


def test_command(trained, tmp_path, monkeypatch):
    out, cache = tmp_path / "assets", {"CALA_CACHE": tmp_path / "cache"}
    lay_out(monkeypatch, out, f"{NAME}={trained}")
    listed = within("encoders", "get", "--from", out, **cache)
    assert (listed.returncode, NAME in listed.stdout) == (0, True)
    done = within("encoders", "get", NAME, "--json", CALA_ENCODERS=out, **cache)
    assert json.loads(done.stdout)["file"] == fetched(NAME)
    assert within("encoders", "get", "other", "--from", out, **cache).returncode == 2
    before = json.loads(within("encoders", "--json", **cache).stdout)
    assert set(before) == {"encoders", "loaders", "architectures"}


def test_nothing_is_published_yet(tmp_path):
    """The index of the package says how to train what it does not have."""
    place, entries = read_index()
    assert (place, [n for n, entry in entries.items() if "sha256" in entry]) == ("", [])
    for name, entry in entries.items():
        with refused(code="not_published", field="name"):
            get_encoder(name)
        words = shlex.split(entry["train"])
        assert words[words.index("-o") + 1] == name
        assert words[words.index("--recipe") + 1] in RECIPES
    done = within("encoders", "get", CALA_CACHE=tmp_path)
    assert done.returncode == 0
    assert all(entry["train"] in done.stdout for entry in entries.values())


def test_publishing_writes_the_index_of_the_package(trained, server, tmp_path, monkeypatch):
    folder, url = server
    own = tmp_path / "published.json"
    own.write_text(json.dumps({"from": None, "encoders": {NAME: {"train": "cala train"}}}))
    monkeypatch.setattr(module, "PUBLISHED_LIST", own)
    lay_out(monkeypatch, folder, f"{NAME}={trained}", "--publish", url)
    assert json.loads(own.read_text())["encoders"][NAME]["train"] == "cala train"
    assert get_encoder(NAME).read_bytes() == (trained / "encoder.safetensors").read_bytes()


def test_other_bytes_are_refused(trained, tmp_path, monkeypatch):
    out = tmp_path / "assets"
    lay_out(monkeypatch, out, f"{NAME}={trained}")
    with (out / f"{NAME}.safetensors").open("ab") as file:
        file.write(b"x")
    with refused(code="not_downloaded"):
        get_encoder(NAME, str(out))
    assert fetched(NAME) is None
    assert list((tmp_path / "cache" / "encoders").iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"encoders": {"a": {}}}',
        '{"encoders": {"a": {"sha256": "../x"}}}',
        '{"encoders": {"a": {"sha256": 3}}}',
        '{"encoders": {"a": {"train": 3}}}',
    ],
)
def test_damaged_indices_are_refused(text, tmp_path):
    (tmp_path / "index.json").write_text(text)
    with refused(code="damaged_file"):
        get_encoder("a", str(tmp_path))


@pytest.mark.parametrize("name", ["../a", "efficientnet-lite0"])
def test_names_that_mean_something_else_are_refused(name, tmp_path):
    (tmp_path / "index.json").write_text(json.dumps({"encoders": {name: {"sha256": "0" * 64}}}))
    with refused(field="name"):
        get_encoder(name, str(tmp_path))


def test_a_mirror_that_is_not_there(tmp_path):
    with refused(code="not_downloaded"):
        read_index(str(tmp_path / "nowhere"))
    with refused(code="unknown_name"):
        get_encoder("nope")
