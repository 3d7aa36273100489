"""What a session of NC-FSCIL learns: a neck that turns a few rows to their vertices."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from cala.core.etf import dot_regression
from cala.core.neck import Neck

MOMENTUM = 0.9


def turn_neck(
    neck: Neck, rows: Tensor, vertices: Tensor, weights: Tensor, *, steps: int, lr: float
) -> Neck:
    """A copy of the neck after some steps towards the vertices, all rows in each of them.

    Nothing here is random.

    rows : (n, d) unit vectors; vertices : (n, w) where each is to go; weights : (n,), sum to one
    """
    with torch.enable_grad():
        turned = copy.deepcopy(neck).requires_grad_(True)
        optimiser = torch.optim.SGD(turned.parameters(), lr=lr, momentum=MOMENTUM)
        for _ in range(steps):
            loss = (weights * dot_regression(turned(rows), vertices)).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return turned.requires_grad_(False)
