"""SAVC's incremental fine-tune: rows of new classes learn from their shots, all others stay."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from cala.core.fantasy import normalise_views

RATE, MOMENTUM = 0.1, 0.9


def tuned_rows(
    unit: Tensor,
    own: Tensor,
    rows: Tensor,
    moving: Tensor,
    *,
    scale: float,
    views: int,
    epochs: int,
) -> Tensor:
    """The moving rows (m, d) after some steps of cross-entropy over all classes.

    All shots are one batch, so their order does not matter.

    unit : (n, d) shots; own : (n,) their columns; rows : (C, d); moving : (m,) columns
    """
    with torch.enable_grad():
        moved = rows[moving].clone().requires_grad_()
        optimiser = torch.optim.SGD([moved], lr=RATE, momentum=MOMENTUM)
        for _ in range(epochs):
            weights = rows.index_copy(0, moving, normalise_views(moved, views))
            loss = F.cross_entropy(scale * unit @ weights.T, own)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return normalise_views(moved.detach(), views)
