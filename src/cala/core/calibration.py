"""Turning cosines into logits: the scale s, and slopes that follow a class's concentration.

Seen as directions, the images of class c follow a von Mises-Fisher density, whose log is
κ_c·cos(x, p_c) + log Z(κ_c): a class that is concentrated has a steeper slope and a lower offset
than one that is spread out. A shared scale ignores this. `fit_concentration` (ours, beyond the
paper) makes slope and offset functions of the class's tightness, with two parameters for all
classes, learned on base rows that are left out of their own prototypes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cala.core.cala import DEFAULT_SCALE, PrototypeTable
from cala.core.rows import Array, chunks

SCALE_RANGE = (1.0, 200.0)
RIDGE_ROWS = 40  # the ridge weighs as much as the loss of this many rows
SLOPE_UNIT = 0.1  # puts both parameters on one footing for the ridge


def fit_scale(cosines: Array, own: Array) -> float:
    """The scale that minimises the cross-entropy of base rows; `DEFAULT_SCALE` without any.

    cosines : (n, B) of rows that did not make their own prototype; own : (n,) their columns
    -> float in `SCALE_RANGE`
    """
    from scipy.optimize import minimize_scalar

    if len(own) == 0:
        return DEFAULT_SCALE
    behind = cosines - np.take_along_axis(cosines, own[:, None], 1)
    top = behind.max(1)
    behind -= top[:, None]
    lead = float(top.mean(dtype=np.float64))
    parts = [behind[rows] for rows in chunks(*behind.shape)]

    def loss(log_scale: float) -> float:
        scale = behind.dtype.type(math.exp(log_scale))
        total = sum(
            float(np.log(np.exp(scale * part).sum(1)).sum(dtype=np.float64)) for part in parts
        )
        return total / len(own) + float(scale) * lead

    bounds = tuple(math.log(s) for s in SCALE_RANGE)
    found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-5})
    return math.exp(float(found.x))


@dataclass(frozen=True)
class Concentration:
    """Logits are slope_c·cos + offset_c: slope (B,), offset (B,), the scale included."""

    slope: Array
    offset: Array


def standardised_tightness(table: PrototypeTable) -> Array:
    """Tightness of each class in units of its spread over classes; 0 where it is unknown."""
    tightness = table.tightness
    known = tightness[~np.isnan(tightness)]
    if len(known) < 2 or known.std(ddof=1) < 1e-6:
        return np.zeros_like(tightness)
    return np.nan_to_num((tightness - known.mean()) / known.std(ddof=1))


def fit_concentration(
    cosines: Array, own: Array, tightness: Array, scale: float, *, free_scale: bool
) -> Concentration:
    """Fit slope s·exp(a·τ_c) and offset b·τ_c, and s too (in `SCALE_RANGE`) where it is free.

    cosines : (n, B) leave-one-out cosines of base rows; own : (n,) their columns
    tightness : (B,) τ, standardised
    """
    from scipy.optimize import minimize

    n, tau = len(own), tightness
    true = np.take_along_axis(cosines, own[:, None], 1)[:, 0].astype(np.float64)
    counts = np.bincount(own, minlength=len(tau)).astype(np.float64)
    true_sums = np.bincount(own, true, len(tau))
    # Noise is best served by no scale at all; the range keeps logits apart even then.
    low, high = (math.log(s / scale) for s in SCALE_RANGE)

    def concentration(parameters: Array) -> Concentration:
        slope = scale * np.exp(parameters[2] + SLOPE_UNIT * parameters[1] * tau)
        return Concentration(slope, parameters[0] * tau)

    def objective(parameters: Array) -> tuple[float, Array]:
        now = concentration(parameters)
        slope, offset = (x.astype(cosines.dtype) for x in (now.slope, now.offset))
        loss, by_offset, by_slope = 0.0, -counts, -true_sums
        for rows in chunks(*cosines.shape):
            logits = cosines[rows] * slope + offset
            logits -= logits.max(1, keepdims=True)
            right = np.take_along_axis(logits, own[rows, None], 1)[:, 0]
            share = np.exp(logits, out=logits)
            total = share.sum(1, keepdims=True)
            loss += float((np.log(total[:, 0]) - right).sum(dtype=np.float64))
            share /= total
            by_offset = by_offset + share.sum(0, dtype=np.float64)
            share *= cosines[rows]
            by_slope = by_slope + share.sum(0, dtype=np.float64)
        ridge = RIDGE_ROWS / n
        gradient = np.array(
            [
                by_offset @ tau / n + 2 * ridge * parameters[0],
                SLOPE_UNIT * (by_slope * now.slope) @ tau / n + 2 * ridge * parameters[1],
                by_slope @ now.slope / n,
            ]
        )
        return loss / n + ridge * float((parameters[:2] ** 2).sum()), gradient

    bounds = [(None, None), (None, None), (low, high) if free_scale else (0.0, 0.0)]
    found = minimize(objective, np.zeros(3), jac=True, method="L-BFGS-B", bounds=bounds)
    return concentration(found.x)
