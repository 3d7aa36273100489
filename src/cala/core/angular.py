"""Angular penalty: a class must win by a margin (CosFace), as ALICE trains."""

from __future__ import annotations

import torch
from torch import Tensor

SCALE, MARGIN = 30.0, 0.4


def cosface_logits(
    cosines: Tensor, labels: Tensor, scale: float = SCALE, margin: float = MARGIN
) -> Tensor:
    """s·(cos − m) for the true class, s·cos for all others: (n, C), (n,) -> (n, C).

    >>> cosface_logits(torch.tensor([[0.5, 0.25]]), torch.tensor([0]), scale=10, margin=0.25)
    tensor([[2.5000, 2.5000]])
    """
    penalty = torch.full_like(labels[:, None], -margin, dtype=cosines.dtype)
    return scale * cosines.scatter_add(1, labels[:, None], penalty)
