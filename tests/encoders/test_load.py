"""load_encoder: names, loaders, files, and errors that say what to do."""

from __future__ import annotations

import sys

import pytest
import torch

from cala import extras
from cala.encoders import ARCHITECTURES, ENCODERS, LOADERS, Transform, load_encoder
from cala.encoders.registry import located
from cala.encoders.torch_module import probe
from cala.encoders.weights import save_encoder
from cala.errors import InputError, UnknownNameError
from cala.extras import install
from refusals import refused


def save(path):
    module = ARCHITECTURES["resnet20"]()
    save_encoder(path, module, architecture="resnet20", transform=Transform(size=32, resize=32))


def test_files_and_folders(tmp_path, monkeypatch):
    save(tmp_path / "encoder.safetensors")
    by_file = load_encoder(str(tmp_path / "encoder.safetensors"))
    by_folder = load_encoder(tmp_path)
    assert by_file.fingerprint == by_folder.fingerprint
    monkeypatch.chdir(tmp_path)
    assert load_encoder("encoder.safetensors").dim == 64


def test_paths_in_uris_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "encoder.safetensors")
    path = str(tmp_path / "encoder.safetensors")
    assert located("encoder.safetensors") == path
    assert located("onnx:encoder.safetensors") == f"onnx:{path}"
    assert located("views:2:encoder.safetensors") == f"views:2:{path}"
    for name in ("efficientnet-lite0", "hf:some/model", "torch:some.module:make"):
        assert located(name) == name


def test_an_architecture_is_no_encoder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "resnet12").mkdir()
    for name in set(ARCHITECTURES) - set(ENCODERS):
        with pytest.raises(InputError) as caught:
            load_encoder(name)
        assert caught.value.code == "untrained"
        assert f"cala train --encoder {name}" in caught.value.fix


@pytest.mark.parametrize(
    ("uri", "named", "hint"),
    [
        ("efficientnet-lite", "'efficientnet-lite'", "'efficientnet-lite0'?"),
        ("tim:resnet50", "'tim:resnet50'", "'timm:resnet50'?"),
        ("quite-else", "'quite-else'", "Known: efficientnet-lite0"),
        ("", "''", "timm:…"),
        ("a\nb", r"'a\nb'", "timm:…"),
        ("x" * 5000, "xxx", "timm:…"),
        ("nul\0", r"'nul\x00'", "timm:…"),
    ],
)
def test_unknown_names(uri, named, hint):
    with refused(named, kind=UnknownNameError, field="encoder") as caught:
        load_encoder(uri)
    assert hint in caught.value.fix


@pytest.mark.parametrize("uri", ["gone/encoder.safetensors", "gone.safetensors", "no/where"])
def test_missing_files(uri):
    with pytest.raises(InputError) as caught:
        load_encoder(uri)
    assert caught.value.code == "no_file"


def test_folder_without_an_encoder(tmp_path):
    with pytest.raises(InputError) as caught:
        load_encoder(tmp_path)
    assert caught.value.code == "no_file"


@pytest.mark.parametrize("prefix", LOADERS)
def test_a_loader_needs_a_name(prefix):
    with pytest.raises(InputError) as caught:
        load_encoder(f"{prefix}:")
    assert (caught.value.field, caught.value.fix) == ("encoder", LOADERS.summary(prefix))


@pytest.mark.parametrize(
    ("uri", "module", "extra"),
    [
        ("timm:resnet18", "timm", "timm"),
        ("hf:some/model", "transformers", "hf"),
        ("onnx:some.onnx", "onnx", "onnx"),
    ],
)
def test_a_missing_extra_is_named(uri, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with refused(module, code="missing_extra") as caught:
        load_encoder(uri)
    assert caught.value.fix == install(extra)


def test_a_broken_extra_is_told_apart(monkeypatch):
    def broken(name):
        raise RuntimeError("operator torchvision::nms does not exist\nand more")

    monkeypatch.setattr(extras, "import_module", broken)
    with refused("timm", "does not exist)", code="broken_extra") as caught:
        load_encoder("timm:resnet18")
    assert "torchvision" in caught.value.fix


def test_probe_checks_the_shape():
    with refused("x ", (1, 2, 4, 4), code="wrong_output"):
        probe(torch.nn.Conv2d(3, 2, 1), 4, "x")
    with refused("x ", "1×3×4×4", code="wrong_input"):
        probe(torch.nn.Linear(3, 2), 4, "x")
