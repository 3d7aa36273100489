"""A small real set of images for tests that train: scanned digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cala.data.images import ArrayPixels, ImageSet, ImageSplit
from cala.encoders import ARCHITECTURES, Transform
from cala.encoders.resnet import ResNet
from cala.training.recipes import Recipe
from problems import digits

N_BASE = 6
if "resnet8" not in ARCHITECTURES:
    ARCHITECTURES.register("resnet8", "for tests")(lambda: ResNet((16, 32, 64), 1, "small"))
FIRST = Recipe(
    "first", "resnet8", Transform(8, 8), epochs=2, batch=32, lr=0.1, schedule="one-cycle", pad=1
)


def scans() -> ImageSet:
    """Scanned digits as images: a small real problem of ten classes."""
    x, y = digits()
    pixels = (np.repeat(x.reshape(-1, 8, 8, 1), 3, 3) * 15.9).astype(np.uint8)
    splits = []
    for part in (0, 1):
        rows = np.flatnonzero(np.arange(len(y)) % 3 == part)
        names = tuple(f"{part}/{row}" for row in rows)
        pixel_rows = ArrayPixels(pixels[rows], np.arange(len(rows)))
        splits.append(ImageSplit(y[rows].astype(np.int64), names, pixel_rows))
    classes = tuple("0123456789")
    return ImageSet("scans", classes, *splits, source=Path("scans"), identify=lambda: "scans")


IMAGES = scans()
