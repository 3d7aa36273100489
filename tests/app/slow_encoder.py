"""An encoder that takes its time for every photo."""

from __future__ import annotations

from torch import Tensor, nn

from model.photos import SlowColours


class Slow(SlowColours):
    """`SlowColours` is slow for two photos or more, and fingerprinted, so it stays as it is."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images.repeat(2, 1, 1, 1))[: len(images)]


def slow() -> nn.Module:
    return Slow()
