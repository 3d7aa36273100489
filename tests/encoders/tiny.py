"""A cheap encoder that counts its forwards, and image sets of noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from cala.data.images import ArrayPixels, ImageSet, ImageSplit
from cala.encoders.base import Encoder
from cala.encoders.transform import Transform

SIDE = 8


class Counting:
    """(n, 3, s, s) -> (n, d): a fixed random projection that is not mirror-symmetric."""

    def __init__(self, dim: int = 5, side: int = SIDE, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.matrix = torch.randn(3 * side * side, dim, generator=generator).numpy() / side
        self.images = 0

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        self.images += len(inputs)
        return inputs.reshape(len(inputs), -1) @ self.matrix


def counting_encoder(seed: int = 0, **options) -> Encoder:
    forward = Counting(seed=seed)
    return Encoder(
        name="counting",
        dim=5,
        transform=Transform(SIDE, SIDE),
        forward=forward,
        fingerprint=f"{seed:064x}",
        **options,
    )


def noise_set(train: list[int], test: list[int], side: int = SIDE, seed: int = 0) -> ImageSet:
    """A set with so many images per class."""
    draw = np.random.default_rng(seed)
    splits = []
    for part, counts in (("train", train), ("test", test)):
        labels = np.repeat(np.arange(len(counts)), counts)
        n = len(labels)
        array = draw.integers(0, 256, (n, side, side, 3)).astype(np.uint8)
        # Something to learn: classes differ in colour.
        array[..., 0] = (labels[:, None, None] * 37 + array[..., 0] // 4) % 256
        names = tuple(f"{part}/{row}" for row in range(n))
        splits.append(ImageSplit(labels.astype(np.int64), names, ArrayPixels(array, np.arange(n))))
    classes = tuple(f"class {c}" for c in range(len(train)))
    return ImageSet("noise", classes, *splits, source=Path("noise"), identify=lambda: f"{seed}")
