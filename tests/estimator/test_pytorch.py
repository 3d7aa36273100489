"""The code of docs/pytorch.md on a network and a cosine layer, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"
TEXT = PAGE.read_text("utf-8")
(BLOCK,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)
(MEANS,) = re.findall(r"`(classifier.weight.data = [^`]*)`", TEXT)
CLASSES, BASE, SIDE = 9, 6, 5


class CosineLayer(nn.Module):
    """Logits s·cos(x, row), with a row for each class."""

    def __init__(self, rows: torch.Tensor, scale: float) -> None:
        super().__init__()
        self.weight, self.scale = nn.Parameter(rows), scale

    def forward(self, x):
        return self.scale * F.linear(F.normalize(x), F.normalize(self.weight))

    def add_class(self, shots):
        row = F.normalize(shots).mean(0, keepdim=True)
        self.weight = nn.Parameter(torch.cat([self.weight.data, row]))


def images_of(label: int, count: int, seed: int) -> torch.Tensor:
    """Images (n, 3, s, s) of one class: its own pattern under noise."""
    pattern = np.random.default_rng(label).normal(size=(3, SIDE, SIDE))
    noise = np.random.default_rng([seed, label]).normal(size=(count, 3, SIDE, SIDE))
    return torch.from_numpy(pattern + 1.5 * noise).float()


@pytest.mark.parametrize("method", ["la", "cala"])
def test_the_page_gives_your_logits_what_cala_gives_its_own(method):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 10))
        trained = torch.randn(BASE, 10)
    base_images = torch.cat([images_of(label, 12, 0) for label in range(BASE)])
    space = {
        "encoder": encoder,
        "classifier": CosineLayer(trained, scale=16.0),
        "base_images": base_images,
        "base_labels": np.repeat(np.arange(BASE), 12),
        "images": torch.cat([images_of(label, 10, 1) for label in range(CLASSES)]),
    }
    imports, once, new_class, later = BLOCK.replace('"cala"', f'"{method}"').split("\n\n")
    exec(f"{imports}\n{once}\n{MEANS}", space)
    for label in range(BASE, CLASSES):
        space.update(new_images=images_of(label, 5, 0), new_labels=[label] * 5)
        exec(new_class, space)
    exec(later, space)

    model, logits = space["model"], space["logits"]
    with torch.no_grad():
        x = encoder(space["images"])
        plain = space["classifier"](x)
    np.testing.assert_allclose(logits, model.decision_function(x.numpy()), atol=1e-4)
    np.testing.assert_array_equal(space["predicted"], model.predict(x.numpy()))
    shift = model.head_.shift
    np.testing.assert_allclose(logits - plain, np.tile(shift, (len(x), 1)), atol=1e-4)
    assert (shift[:BASE] == 0).all()
    assert (shift[BASE:] != 0).all()
    assert (plain.argmax(1) != logits.argmax(1)).any()
    assert logits.dtype == torch.float32
