"""Cosine logits with a scale (Eq. 4), the scale fitted to the data, and adjusted logits (Eq. 8)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cala.core.prototypes import PrototypeTable, chunks, normalise

DEFAULT_SCALE = 16.0
SCALE_RANGE = (1.0, 200.0)


def cosine_logits(unit: Tensor, prototypes: Tensor, scale: float) -> Tensor:
    """Eq. 4: s·cos(f(x), p_c) for unit embeddings (n, d) and prototypes (C, d) -> (n, C)."""
    return scale * (unit @ normalise(prototypes).to(unit.dtype).T)


def leave_one_out_cosine(cosines: Tensor, table: PrototypeTable, own: Tensor) -> Tensor:
    """Cosines in which each row's own class prototype is recomputed without that row.

    A row that is its class's only member has no such prototype and gets cosine 0 there.

    cosines : (n, C); own : (n,) the column whose sum each row is part of, -1 for none -> (n, C)
    """
    rows = (own >= 0).nonzero()[:, 0]
    own = own[rows]
    length = table.sums.norm(dim=1)[own]
    dot = cosines[rows, own].to(torch.float64) * length
    rest = (length.square() - 2 * dot + 1).clamp_min(0).sqrt()
    alone = (table.counts[own] <= 1) | (rest < 1e-9)
    without = torch.where(alone, 0.0, (dot - 1) / rest.clamp_min(1e-9)).clamp(-1, 1)
    result = cosines.clone()
    result[rows, own] = without.to(cosines.dtype)
    return result


def fit_scale(cosines: Tensor, own: Tensor) -> float:
    """The scale that minimises the cross-entropy of base rows; `DEFAULT_SCALE` without any.

    cosines : (n, B) of rows that did not make their own prototype; own : (n,) their columns
    -> float in `SCALE_RANGE`
    """
    if len(own) == 0:
        return DEFAULT_SCALE
    behind = cosines.to(torch.float64, copy=True)
    behind -= behind.gather(1, own[:, None])
    parts = [behind[rows] for rows in chunks(*behind.shape)]

    def loss(log_scale: float) -> float:
        """Cross-entropy; exponents of at most 2·200 need no maximum taken off them."""
        scale = math.exp(log_scale)
        return sum(float((scale * part).exp_().sum(1).log_().sum()) for part in parts) / len(own)

    # Cross-entropy is convex in s, so one valley: golden-section search on log s.
    low, high = (math.log(s) for s in SCALE_RANGE)
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = loss(left), loss(right)
    for _ in range(30):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = loss(right)
    return math.exp((low + high) / 2)


def adjusted_logits(
    logits: Tensor, n_base: int, beta: Tensor, gamma: float, delta: float = 0.0
) -> Tensor:
    """Eq. 8 with the operating point: z + [0, γβ + δ], base columns first.

    logits : (n, B + F); beta : (F,) -> (n, B + F)

    >>> adjusted_logits(torch.zeros(1, 3), 2, torch.tensor([0.5]), gamma=10.0)
    tensor([[0., 0., 5.]])
    """
    shift = logits.new_zeros(logits.shape[1])
    shift[n_base:] = gamma * beta.to(logits.dtype) + delta
    return logits + shift
