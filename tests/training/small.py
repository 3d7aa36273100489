"""A base session small enough for tests."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from cala.encoders import ARCHITECTURES, Transform
from cala.training.recipes import Recipe
from cala.training.session import BaseSession
from encoders.tiny import noise_set


class Small(nn.Module):
    dim = 6

    def __init__(self, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.norm = norm or nn.BatchNorm2d(6)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(images))).mean((2, 3))


if "small-bn" not in ARCHITECTURES:
    ARCHITECTURES.register("small-bn", "for tests")(Small)
    ARCHITECTURES.register("small-gn", "for tests")(lambda: Small(nn.GroupNorm(2, 6)))

RECIPE = Recipe(
    "small", "small-bn", Transform(8, 8), epochs=4, batch=8, lr=0.05, schedule="one-cycle",
    pad=1, sizes=((0.5, 6),),
)  # fmt: skip


def session(out: Path, **changes) -> BaseSession:
    images = noise_set([12, 12, 12, 12], [2, 2, 2, 2])
    usual = {"images": images, "recipe": RECIPE, "n_base": 3, "holdout": 2, "seed": 0}
    return BaseSession(out=out, **{**usual, **changes})
