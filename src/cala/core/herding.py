"""Herding (Welling, 2009; iCaRL): the images whose mean stays closest to the class mean."""

from __future__ import annotations

import torch
from torch import Tensor


def herd(unit: Tensor, count: int) -> Tensor:
    """Rows of unit vectors (n, d) in the order in which they are chosen: (min(count, n),).

    Each is the one that brings the mean of those chosen closest to the mean of all:
    argmin ‖μ − (S + f) / k‖, no row twice.
    """
    mean = unit.mean(0)
    total = torch.zeros_like(mean)
    free = torch.ones(len(unit), dtype=torch.bool, device=unit.device)
    chosen: list[int] = []
    for k in range(1, min(count, len(unit)) + 1):
        apart = (mean - (total + unit) / k).norm(dim=1)
        best = int(apart.masked_fill(~free, torch.inf).argmin())
        chosen.append(best)
        free[best] = False
        total = total + unit[best]
    return torch.tensor(chosen, device=unit.device)
