"""NC-FSCIL's neck: what turns embeddings towards the vertices of a simplex."""

from __future__ import annotations

import math

from torch import Tensor, nn

NAME = "nc."  # what the names of its tensors begin with, beside an encoder
VERTICES = "nc.vertices"
WIDTH = 512
SLOPE = 0.1


class Neck(nn.Module):
    """Two hidden layers of twice the dimensions and a linear way around them: (n, d) -> (n, w).

    It takes unit embeddings times √d, so that their numbers are about 1: sessions know embeddings
    by their direction alone, and a neck that was trained with lengths would miss them there.
    """

    def __init__(self, dim: int, width: int = WIDTH) -> None:
        super().__init__()
        wide = 2 * dim
        self.body = nn.Sequential(
            nn.Linear(dim, wide),
            nn.LayerNorm(wide),
            nn.LeakyReLU(SLOPE),
            nn.Linear(wide, wide),
            nn.LayerNorm(wide),
            nn.LeakyReLU(SLOPE),
            nn.Linear(wide, width, bias=False),
        )
        self.skip = nn.Linear(dim, width, bias=False)
        self.dim = dim

    def forward(self, unit: Tensor) -> Tensor:
        x = math.sqrt(self.dim) * unit
        return self.body(x) + self.skip(x)


def neck_width(n_classes: int) -> int:
    """As published, or as many as a simplex of that many classes needs."""
    return max(WIDTH, n_classes)
