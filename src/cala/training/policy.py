"""RandAugment-style policy on whole batches: every image gets its own operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from cala.training.augment import grey, like

Change = Callable[[Tensor, Tensor], Tensor]


def _identity(x: Tensor, m: Tensor) -> Tensor:
    return x


def _brightness(x: Tensor, m: Tensor) -> Tensor:
    return x * (1 + 0.9 * m)


def _contrast(x: Tensor, m: Tensor) -> Tensor:
    middle = grey(x).mean((1, 2, 3), keepdim=True)
    return middle + (x - middle) * (1 + 0.9 * m)


def _colour(x: Tensor, m: Tensor) -> Tensor:
    return grey(x) + (x - grey(x)) * (1 + 0.9 * m)


def _sharpness(x: Tensor, m: Tensor) -> Tensor:
    blurred = F.avg_pool2d(x.permute(0, 3, 1, 2), 3, 1, padding=1, count_include_pad=False)
    soft = blurred.permute(0, 2, 3, 1)
    return soft + (x - soft) * (1 + 0.9 * m)


def _posterise(x: Tensor, m: Tensor) -> Tensor:
    step = 2 ** (4 * m.abs()).round()
    return (x / step).floor() * step


def _solarise(x: Tensor, m: Tensor) -> Tensor:
    return torch.where(x >= 256 * (1 - m.abs()), 255 - x, x)


def _autocontrast(x: Tensor, m: Tensor) -> Tensor:
    low, high = x.amin((1, 2), keepdim=True), x.amax((1, 2), keepdim=True)
    return torch.where(high > low, (x - low) * 255 / (high - low).clamp(min=1), x)


def _move(x: Tensor, theta: Tensor) -> Tensor:
    pixels = x.permute(0, 3, 1, 2)
    grid = F.affine_grid(theta, list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels, grid, align_corners=False).permute(0, 2, 3, 1)


def _theta(x: Tensor, rows: list[list[Tensor | float]]) -> Tensor:
    ones = x.new_ones(len(x))
    return torch.stack([torch.stack([ones * value for value in row], 1) for row in rows], 1)


def _rotate(x: Tensor, m: Tensor) -> Tensor:
    angle = m.flatten() * math.radians(30)
    cos, sin = angle.cos(), angle.sin()
    return _move(x, _theta(x, [[cos, -sin, 0.0], [sin, cos, 0.0]]))


def _shear_x(x: Tensor, m: Tensor) -> Tensor:
    return _move(x, _theta(x, [[1.0, 0.3 * m.flatten(), 0.0], [0.0, 1.0, 0.0]]))


def _shear_y(x: Tensor, m: Tensor) -> Tensor:
    return _move(x, _theta(x, [[1.0, 0.0, 0.0], [0.3 * m.flatten(), 1.0, 0.0]]))


def _shift_x(x: Tensor, m: Tensor) -> Tensor:
    return _move(x, _theta(x, [[1.0, 0.0, 0.9 * m.flatten()], [0.0, 1.0, 0.0]]))


def _shift_y(x: Tensor, m: Tensor) -> Tensor:
    return _move(x, _theta(x, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.9 * m.flatten()]]))


CHANGES: tuple[Change, ...] = (
    _identity, _brightness, _contrast, _colour, _sharpness, _posterise, _solarise,
    _autocontrast, _rotate, _shear_x, _shear_y, _shift_x, _shift_y,
)  # fmt: skip


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
            for number, change in enumerate(CHANGES):
                rows = (choice == number).nonzero()[:, 0]
                if len(rows):
                    out[rows] = change(x[rows], amount[rows][:, None, None, None]).clamp(0, 255)
            x = out
        return like(x, images)
