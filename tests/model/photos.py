"""Folders of small photos that a tiny encoder can tell apart, and that encoder."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor, nn

from cala.encoders.transform import Transform

SIDE = 12


class Colours(nn.Module):
    """(n, 3, s, s) -> (n, 12): mean colour of each quarter."""

    dim = 12
    transform = Transform(SIDE, SIDE)

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)


def colours() -> nn.Module:
    return Colours()


class SlowColours(Colours):
    """Leaves a file beside the cache when it is first used, and takes its time."""

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > 1:
            Path(os.environ["CALA_CACHE"]).with_name("started").touch()
            time.sleep(0.5)
        return super().forward(images)


def slow_colours() -> nn.Module:
    return SlowColours()


ENCODER = "torch:model.photos:colours"


def centre(label: int) -> np.ndarray:
    """(2, 2, 3): what photos of a class look like on average."""
    return np.random.default_rng(1000 + label).uniform(40, 215, (2, 2, 3))


def photo(label: int, number: int, noise: float = 25.0) -> np.ndarray:
    draw = np.random.default_rng([label, number])
    quarters = centre(label) + draw.normal(0, noise, (2, 2, 3))
    pixels = np.kron(quarters, np.ones((SIDE // 2, SIDE // 2, 1)))
    return (pixels + draw.normal(0, 8, pixels.shape)).clip(0, 255).astype(np.uint8)


def write_photos(folder: Path, labels: range, numbers: range) -> Path:
    """folder/class 3/0007.png and so on."""
    for label in labels:
        target = folder / f"class {label}"
        target.mkdir(parents=True, exist_ok=True)
        for number in numbers:
            Image.fromarray(photo(label, number)).save(target / f"{number:04}.png")
    return folder
