"""Cosine logits with a scale (Eq. 4), the scale fitted to the data, and adjusted logits (Eq. 8)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cala.core.prototypes import PrototypeTable, normalise

DEFAULT_SCALE = 16.0
SCALE_RANGE = (1.0, 200.0)
SCALE_TOLERANCE = 1e-7  # of log s


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
    cosines = cosines.double()
    behind = cosines - cosines.gather(1, own[:, None])  # differences: no cancellation near 0

    def slopes(scale: float) -> tuple[float, float]:
        """First and second derivative of the cross-entropy by s."""
        share = (scale * behind).softmax(1)
        expected = share.mul_(behind).sum(1)
        spread = share.mul_(behind).sum(1) - expected.square()
        return float(expected.mean()), float(spread.mean())

    # Cross-entropy is convex in s, so its slope has one root at most: Newton on log s, in a bracket
    # that starts with the whole range.
    smallest, largest = SCALE_RANGE
    if slopes(largest)[0] <= 0:
        return largest
    if slopes(smallest)[0] >= 0:
        return smallest
    low, high = math.log(smallest), math.log(largest)
    at, change = math.log(DEFAULT_SCALE), math.inf
    while abs(change) > SCALE_TOLERANCE:
        slope, curvature = slopes(math.exp(at))
        low, high = (at, high) if slope <= 0 else (low, at)
        wanted = at - slope / (math.exp(at) * curvature) if curvature > 0 else math.inf
        if not low < wanted < high:
            wanted = (low + high) / 2
        at, change = wanted, wanted - at
    return math.exp(at)


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
