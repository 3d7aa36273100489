"""`cala export` from the command line."""

from __future__ import annotations

import json

import pytest

from cli.inside import refusal
from export.small import make_model, need_onnx
from refusals import assert_names

need_onnx()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def birds(tmp_path, monkeypatch):
    """A model whose encoder can be found by name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "networks.py").write_text(
        "from export.small import SIDE, Tiny\n"
        "from cala.encoders import Transform\n"
        "def tiny():\n"
        "    module = Tiny()\n"
        "    module.transform = Transform(SIDE, SIDE + 2)\n"
        "    return module\n"
    )
    from cala.encoders import load_encoder

    return make_model(tmp_path / "birds", load_encoder("torch:networks:tiny"), "la").path


def test_export(inside, birds, tmp_path):
    target = tmp_path / "birds.onnx"
    trust = ("--trust-encoder", "torch:networks:tiny")
    code, out, err = inside("export", birds, "--onnx", target, *trust)
    assert (code, err) == (0, "")
    assert f"{target}: 12 classes, " in out
    assert "birds.npz: weights, bias and names of the classes" in out
    found = refusal("export", birds, "--onnx", target)
    assert_names(found, target, field="path", code="exists")
    assert "--force" in found.fix
    code, out, err = inside("export", birds, "--onnx", target, "--force", "--json")
    assert code == 0
    assert json.loads(out)["classes"] == 12
    assert json.loads(out)["difference"] < 1e-4


def test_help_has_an_example(inside):
    code, out, _ = inside("export", "--help")
    assert code == 0
    assert "cala export birds --onnx birds.onnx" in out


def test_no_model(tmp_path):
    found = refusal("export", tmp_path / "nothing", "--onnx", tmp_path / "x.onnx")
    assert_names(found, tmp_path / "nothing", code="no_model")
