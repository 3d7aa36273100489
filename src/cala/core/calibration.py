"""Turning cosines into logits: the scale s, and slopes that follow a class's concentration.

Seen as directions, the images of class c follow a von Mises-Fisher density, whose log is
κ_c·cos(x, p_c) + log Z(κ_c): a class that is concentrated has a steeper slope and a lower offset
than one that is spread out. A shared scale ignores this. `fit_concentration` (ours, beyond the
paper) makes slope and offset functions of the class's tightness, with two parameters for all
classes, learned on base rows that are left out of their own prototypes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import Self

from cala.core.cala import DEFAULT_SCALE, Episode, PrototypeTable
from cala.core.rows import Array, chunks

SCALE_RANGE = (1.0, 200.0)
SHARPEST, SOFTEST = 0.5, 8.0  # temperature
RIDGE_ROWS = 40  # the ridge weighs as much as the loss of this many rows
SLOPE_UNIT = 0.1  # puts both parameters on one footing for the ridge


def leave_one_out(cosines: Array, table: PrototypeTable, own: Array) -> Array:
    """Cosines in which each row's own class prototype is recomputed without that row.

    A row that is its class's only member has no such prototype and gets cosine 0 there.

    cosines : (n, C); own : (n,) the column whose sum each row is part of, -1 for none -> (n, C)
    """
    rows = np.flatnonzero(own >= 0)
    own = own[rows]
    length = np.sqrt(np.einsum("cd,cd->c", table.sums, table.sums))[own]
    dot = cosines[rows, own].astype(np.float64) * length
    rest = np.sqrt(np.maximum(length**2 - 2 * dot + 1, 0))
    alone = (table.counts[own] <= 1) | (rest < 1e-9)
    result = cosines.copy()
    result[rows, own] = np.where(alone, 0.0, (dot - 1) / np.maximum(rest, 1e-9)).clip(-1, 1)
    return result


def fit_scale(cosines: Array, own: Array) -> float:
    """The scale that minimises the cross-entropy of base rows; `DEFAULT_SCALE` without any.

    cosines : (n, B) of rows that did not make their own prototype; own : (n,) their columns
    -> float in `SCALE_RANGE`
    """
    if not len(own):
        return DEFAULT_SCALE
    return _best_scale([(cosines, own, np.ones(len(own)))], SCALE_RANGE)


def _best_scale(parts: Sequence[tuple[Array, Array, Array]], bounds: tuple[float, float]) -> float:
    """The factor of logits that minimises their cross-entropy.

    n rows that are all right say no more than the rule of succession does, (n + 1) / (n + 2): each
    row counts as one of another class with a share of 1 / (n + 2). Without that, ten rows that lie
    well apart would be answered with 100 %.

    parts : logits (m, C), the rows' own columns (m,), and what each row counts (m,)
    """
    from scipy.optimize import minimize_scalar

    n = sum(len(own) for _, own, _ in parts)
    total = sum(float(weight.sum()) for *_, weight in parts)
    pieces, lead = [], 0.0
    for logits, own, weight in parts:
        behind = logits - np.take_along_axis(logits, own[:, None], 1)
        others = behind.sum(1, dtype=np.float64) / max(behind.shape[1] - 1, 1)
        top = behind.max(1)
        behind -= top[:, None]
        lead += float(weight @ (top - others / (n + 2)))
        pieces += [(behind[rows], weight[rows]) for rows in chunks(*behind.shape)]

    def loss(log_scale: float) -> float:
        scale = math.exp(log_scale)
        spread = sum(
            float(weight @ np.log(np.exp(behind.dtype.type(scale) * behind).sum(1)))
            for behind, weight in pieces
        )
        return (spread + scale * lead) / total

    found = minimize_scalar(
        loss, bounds=[math.log(s) for s in bounds], method="bounded", options={"xatol": 1e-5}
    )
    return math.exp(float(found.x))


@dataclass(frozen=True)
class Temperature:
    """How sure to be: logits are divided by one number where a base class wins, by another where
    a novel one does. The order of the classes stays as it is.
    """

    base: float = 1.0
    novel: float = 1.0

    @classmethod
    def of(cls, episodes: Sequence[Episode], shifts: Sequence[Array]) -> Self:
        """From episodes that taught nothing, whose novel columns are shifted: one (F,) for each.

        Every class counts the same, however many rows it has.
        """
        found = []
        for novel in (False, True):
            side = []
            for episode, shift in zip(episodes, shifts, strict=True):
                if episode.sample is not None:
                    logits, columns = episode.sample
                    n_base = logits.shape[1] - len(shift)
                    logits = logits + np.pad(shift, (n_base, 0))
                    weight = 1 / np.bincount(columns)[columns]
                    rows = (logits.argmax(1) >= n_base) == novel
                    side.append((logits[rows], columns[rows], weight[rows]))
            some = any(len(own) for _, own, _ in side)
            found.append(1 / _best_scale(side, (1 / SOFTEST, 1 / SHARPEST)) if some else 1.0)
        return cls(*found)

    def probabilities(self, logits: Array, n_base: int) -> Array:
        """Shares of logits (n, C) that sum to 1, in place."""
        logits -= logits.max(1, keepdims=True)
        if (self.base, self.novel) != (1.0, 1.0):
            novel = logits[:, :n_base].max(1) < 0
            logits /= np.where(novel, self.novel, self.base).astype(logits.dtype)[:, None]
        np.exp(logits, out=logits)
        logits /= logits.sum(1, keepdims=True)
        return logits


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
