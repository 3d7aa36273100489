"""Augmentation of whole batches on tensors, on the device that trains.

Every operation takes `u`, numbers drawn evenly from [0, 1): one row per image, `draws` columns.
Nothing else is random, so a batch can be split over devices, or repeated after an interruption,
and gives the same images.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol as Interface

import torch
import torch.nn.functional as F
from torch import Tensor

from cala.encoders.transform import resized_crop
from cala.training.recipes import Recipe


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
        x = away_from(mean_grey(x), x, contrast).clamp(0, 255)
        return like(away_from(grey(x), x, colour), images)


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


def grey(images: Tensor) -> Tensor:
    """(n, h, w, 3) -> (n, h, w, 1) luma"""
    return (images * images.new_tensor([0.299, 0.587, 0.114])).sum(-1, keepdim=True)


def mean_grey(images: Tensor) -> Tensor:
    """(n, h, w, 3) -> (n, 1, 1, 1): the mean luma of each image"""
    return grey(images).mean((1, 2, 3), keepdim=True)


def away_from(plain: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    """Images `factor` times as far from a plain version of themselves: 0 is that, 1 no change."""
    return plain + (images - plain) * factor


def like(values: Tensor, images: Tensor) -> Tensor:
    """Values in the type that the images have."""
    if images.dtype == torch.uint8:
        return values.round().clamp(0, 255).to(torch.uint8)
    return values


# A policy in the style of RandAugment: every image gets its own changes. Each takes pixels
# (n, h, w, 3) from 0 to 255 and strengths (n, 1, 1, 1) from -1 to 1.

Change = Callable[[Tensor, Tensor], Tensor]


def _enhance(plain: Callable[[Tensor], Tensor]) -> Change:
    return lambda x, m: away_from(plain(x), x, 1 + 0.9 * m)


def _blurred(x: Tensor) -> Tensor:
    pixels = x.permute(0, 3, 1, 2)
    mean = F.avg_pool2d(pixels, 3, 1, padding=1, count_include_pad=False)
    return mean.permute(0, 2, 3, 1)


def _posterise(x: Tensor, m: Tensor) -> Tensor:
    step = 2 ** (4 * m.abs()).round()
    return (x / step).floor() * step


def _solarise(x: Tensor, m: Tensor) -> Tensor:
    return torch.where(x >= 256 * (1 - m.abs()), 255 - x, x)


def _autocontrast(x: Tensor, m: Tensor) -> Tensor:
    low, high = x.amin((1, 2), keepdim=True), x.amax((1, 2), keepdim=True)
    return torch.where(high > low, (x - low) * 255 / (high - low).clamp(min=1), x)


def _warp(x: Tensor, *matrix: Tensor | float) -> Tensor:
    """Move the pixels by an affine matrix, row by row (6 numbers, of each image or of all)."""
    theta = torch.stack([x.new_ones(len(x)) * value for value in matrix], 1)
    pixels = x.permute(0, 3, 1, 2)
    grid = F.affine_grid(theta.reshape(-1, 2, 3), list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels, grid, align_corners=False).permute(0, 2, 3, 1)


def _rotate(x: Tensor, m: Tensor) -> Tensor:
    angle = m.flatten() * math.radians(30)
    return _warp(x, angle.cos(), -angle.sin(), 0, angle.sin(), angle.cos(), 0)


CHANGES: dict[str, Change] = {
    "identity": lambda x, m: x,
    "brightness": _enhance(torch.zeros_like),
    "contrast": _enhance(mean_grey),
    "colour": _enhance(grey),
    "sharpness": _enhance(_blurred),
    "posterise": _posterise,
    "solarise": _solarise,
    "autocontrast": _autocontrast,
    "rotate": _rotate,
    "shear_x": lambda x, m: _warp(x, 1, 0.3 * m.flatten(), 0, 0, 1, 0),
    "shear_y": lambda x, m: _warp(x, 1, 0, 0, 0.3 * m.flatten(), 1, 0),
    "shift_x": lambda x, m: _warp(x, 1, 0, 0.9 * m.flatten(), 0, 1, 0),
    "shift_y": lambda x, m: _warp(x, 1, 0, 0, 0, 1, 0.9 * m.flatten()),
}


@dataclass(frozen=True)
class Policy:
    """`changes` random operations per image, each of a random strength up to `strength`."""

    changes: int = 2
    strength: float = 0.5

    @property
    def draws(self) -> int:
        return 2 * self.changes

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        x = images.float()
        for layer in range(self.changes):
            choice = (u[:, 2 * layer] * len(CHANGES)).long()
            amount = (2 * u[:, 2 * layer + 1] - 1) * self.strength
            out = x.clone()
            for number, change in enumerate(CHANGES.values()):
                rows = (choice == number).nonzero()[:, 0]
                if len(rows):
                    out[rows] = change(x[rows], amount[rows][:, None, None, None]).clamp(0, 255)
            x = out
        return like(x, images)


# What a recipe asks for.


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


def augmentation(recipe: Recipe) -> Augmentation:
    """The recipe's operations, in the order in which the field applies them."""
    operations: list[Operation] = []
    if recipe.augment == "crop":
        operations += [PadCrop(recipe.pad), Flip()]
    elif recipe.augment == "resized-crop":
        operations += [ResizedCrop(recipe.transform.size, recipe.area), Flip()]
    if recipe.jitter:
        jitter = ColourJitter(recipe.jitter, recipe.jitter, recipe.jitter)
        every = recipe.jittered == 1
        operations.append(jitter if every else Sometimes(jitter, recipe.jittered))
    if recipe.grey:
        operations.append(Sometimes(Grey(), recipe.grey))
    if recipe.policy:
        operations.append(Policy(recipe.policy))
    if recipe.cutout:
        operations.append(Cutout(recipe.cutout))
    return Augmentation(tuple(operations))
