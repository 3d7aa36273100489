"""Mixup and CutMix: a batch of images blended with itself, two labels for each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cala.core.cala import mix

MIXUP, CUTMIX = 0.8, 1.0  # both parameters of the Beta distribution that λ comes from
SHARES = (0.4, 0.4, 0.2)  # of batches with mixup, with CutMix, left as they are


@dataclass(frozen=True)
class Blend:
    """Images of two parents.

    images : (n, 3, h, w); other : (n,) the row that each image was blended with
    share : λ, how much of an image is its own
    """

    images: Tensor
    other: Tensor
    share: float


def blend(images: Tensor) -> Blend:
    """Mixup, CutMix or neither of a batch (n, 3, h, w), drawn from torch's own generator."""
    order = torch.randperm(len(images)).to(images.device)
    kind = float(torch.rand(()))
    if kind < SHARES[0]:
        return mixup(images, order, _beta(MIXUP))
    if kind < SHARES[0] + SHARES[1]:
        return cutmix(images, order, _beta(CUTMIX), *torch.rand(2).tolist())
    return Blend(images, order, 1.0)


def mixup(images: Tensor, other: Tensor, share: float) -> Blend:
    """Every pixel is of both."""
    return Blend(mix(images, images[other], share), other, share)


def cutmix(images: Tensor, other: Tensor, share: float, down: float, right: float) -> Blend:
    """A box of the other image, around a point that lies so far `down` and to the `right`.

    The box has a share of 1 − λ before the image's borders cut it; λ is then what is left.
    """
    height, width = images.shape[2:]
    side = math.sqrt(1 - share)
    top, bottom = _span(down, side, height)
    left, end = _span(right, side, width)
    cut = images.clone()
    cut[:, :, top:bottom, left:end] = images[other, :, top:bottom, left:end]
    return Blend(cut, other, 1 - (bottom - top) * (end - left) / (height * width))


def _span(place: float, side: float, length: int) -> tuple[int, int]:
    """From where to where a box reaches along one axis."""
    middle, half = int(place * length), int(side * length) // 2
    return max(middle - half, 0), min(middle + half, length)


def _beta(concentration: float) -> float:
    return float(torch.distributions.Beta(concentration, concentration).sample())
