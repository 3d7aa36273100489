"""The simplex equiangular tight frame: as many directions as classes, all equally far apart."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from cala.errors import InputError

WEIGHT = 10.0  # of the dot-regression loss


def simplex_etf(n_classes: int, dim: int, generator: torch.Generator | None = None) -> Tensor:
    """Vertices (C, d): unit vectors with a cosine of −1/(C−1) between any two.

    Rows of Mᵀ, M = √(C/(C−1))·U(I − 11ᵀ/C), the columns of U (d, C) orthonormal and random.

    generator : decides U; None is torch's own

    >>> vertices = simplex_etf(3, 4, torch.Generator().manual_seed(0))
    >>> (vertices @ vertices.T).mul(2).round().int().tolist()
    [[2, -1, -1], [-1, 2, -1], [-1, -1, 2]]
    """
    if n_classes < 2:
        raise InputError(f"a simplex of {n_classes} vertex has no angles: give two classes or more")
    if dim < n_classes:
        raise InputError(
            f"a simplex of {n_classes} classes needs as many dimensions and was given {dim}: make "
            "the neck wider, or train with fewer classes"
        )
    drawn = torch.randn(dim, n_classes, dtype=torch.float64, generator=generator)
    basis = torch.linalg.qr(drawn).Q
    centred = basis - basis.mean(1, keepdim=True)
    return (math.sqrt(n_classes / (n_classes - 1)) * centred).T.float().contiguous()


def dot_regression(outputs: Tensor, vertices: Tensor) -> Tensor:
    """10·½·(cos(h, m) − 1)² of each row: (n, d), (n, d) unit vertices -> (n,)."""
    cosines = (F.normalize(outputs, dim=1) * vertices).sum(1)
    return WEIGHT / 2 * (cosines - 1).square()
