"""Augmentation of whole batches on tensors, on the device that trains.

Every operation takes `u`, numbers drawn evenly from [0, 1): one row per image, `draws` columns.
Nothing else is random, so a batch can be split over devices, or repeated after an interruption,
and gives the same images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol as Interface

import torch
from torch import Tensor

from cala.encoders.transform import resized_crop


class Operation(Interface):
    """draws : how many random numbers an image needs"""

    @property
    def draws(self) -> int: ...

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        """(n, h, w, 3) and (n, draws) -> (n, h', w', 3), of the same dtype"""
        ...


@dataclass(frozen=True)
class PadCrop:
    """Shift by up to `pad` pixels; what comes in from outside is black."""

    pad: int
    draws: int = 2

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        n, height, width, channels = images.shape
        wide = images.new_zeros((n, height + 2 * self.pad, width + 2 * self.pad, channels))
        wide[:, self.pad : self.pad + height, self.pad : self.pad + width] = images
        start = (u * (2 * self.pad + 1)).long()
        rows = start[:, :1] + torch.arange(height, device=images.device)
        columns = start[:, 1:] + torch.arange(width, device=images.device)
        each = torch.arange(n, device=images.device)
        return wide[each[:, None, None], rows[:, :, None], columns[:, None, :]]


@dataclass(frozen=True)
class Flip:
    """Mirror every second image."""

    draws: int = 1

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        return torch.where((u < 0.5)[:, :, None, None], images.flip(2), images)


@dataclass(frozen=True)
class ResizedCrop:
    """A random part of the image, resized to `size` × `size` (bilinear).

    area : share of the image's area; ratio : its width to height
    """

    size: int
    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    draws: int = 4

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        pixels = images.permute(0, 3, 1, 2).float()
        out = resized_crop(pixels, u, self.size, self.area, self.ratio)
        return like(out.permute(0, 2, 3, 1), images)


@dataclass(frozen=True)
class ColourJitter:
    """Brightness, contrast and saturation, each changed by up to its share, in this order."""

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    draws: int = 3

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        strength = u.new_tensor([self.brightness, self.contrast, self.saturation])
        factor = 1 + (2 * u - 1) * strength
        bright, contrast, colour = (f[:, None, None, None] for f in factor.unbind(1))
        x = (images.float() * bright).clamp(0, 255)
        middle = grey(x).mean((1, 2, 3), keepdim=True)
        x = (middle + (x - middle) * contrast).clamp(0, 255)
        x = grey(x) + (x - grey(x)) * colour
        return like(x, images)


@dataclass(frozen=True)
class Grey:
    """No colours."""

    draws: int = 0

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        return like(grey(images.float()).expand(images.shape), images)


@dataclass(frozen=True)
class Sometimes:
    """An operation that keeps the size, on a share of the images."""

    operation: Operation
    share: float

    @property
    def draws(self) -> int:
        return 1 + self.operation.draws

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        rows = (u[:, 0] < self.share).nonzero()[:, 0]
        changed = self.operation(images[rows], u[rows, 1:])
        return images.index_copy(0, rows, changed)


@dataclass(frozen=True)
class Cutout:
    """A black square of `size` pixels around a random point."""

    size: int
    draws: int = 2

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        inside = []
        for axis, side in ((0, images.shape[1]), (1, images.shape[2])):
            start = (u[:, axis : axis + 1] * side).floor() - self.size // 2
            place = torch.arange(side, device=images.device)
            inside.append((place >= start) & (place < start + self.size))
        hole = inside[0][:, :, None, None] & inside[1][:, None, :, None]
        return images.masked_fill(hole, 0)


@dataclass(frozen=True)
class Augmentation:
    """Operations one after the other."""

    operations: tuple[Operation, ...]

    @property
    def draws(self) -> int:
        return sum(operation.draws for operation in self.operations)

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """The random numbers of n images: (n, draws)."""
        return torch.rand(n, self.draws, generator=generator)

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        start = 0
        for operation in self.operations:
            images = operation(images, u[:, start : start + operation.draws])
            start += operation.draws
        return images


def grey(images: Tensor) -> Tensor:
    """(n, h, w, 3) -> (n, h, w, 1) luma"""
    return (images * images.new_tensor([0.299, 0.587, 0.114])).sum(-1, keepdim=True)


def like(values: Tensor, images: Tensor) -> Tensor:
    """Values in the type that the images have."""
    if images.dtype == torch.uint8:
        return values.round().clamp(0, 255).to(torch.uint8)
    return values
