"""Where on the base/novel trade-off a model works: δ in ẑ = z + [0, γβ + δ]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cala.core.cala import Episode
from cala.core.rows import Array
from cala.metrics import TradeOff, trade_off_from_switches
from cala.registry import check_choice

OBJECTIVES = ("accuracy", "harmonic")
CURVE_POINTS = 512
CONFIDENCE = 0.975  # leaves room for the sampling of what it is tested on, too


def pseudo_trade_off(episodes: Sequence[Episode], shifts: Sequence[Array]) -> TradeOff:
    """The trade-off curve of played episodes whose novel columns are shifted by γβ.

    Every class weighs the same, as in training. At most `CURVE_POINTS` points are kept, so that
    a model can store its curve and move along it later without any image.

    shifts : one (F,) per episode
    """
    parts: dict[bool, list[tuple[Array, Array, Array]]] = {True: [], False: []}
    for episode, shift in zip(episodes, shifts, strict=True):
        s = episode.scores
        best, winner = s.best(shift)
        switch, is_base = s.base_max - best, s.own < 0
        right = np.where(is_base, s.base_right, winner == s.own)
        for side in (True, False):
            rows = is_base == side
            parts[side].append((switch[rows], right[rows], s.weight[rows]))
    base, novel = (
        [np.concatenate(column) for column in zip(*parts[side], strict=True)]
        for side in (True, False)
    )
    curve = trade_off_from_switches(base[0], base[1], novel[0], novel[1], base[2], novel[2])
    return thinned(curve, CURVE_POINTS)


def thinned(curve: TradeOff, points: int) -> TradeOff:
    """The curve on at most `points` of its points, evenly spread along its length.

    Every point keeps the end of its own interval: a shift beyond it is worse than it says.
    """
    if len(curve.delta) <= points:
        return curve
    length = curve.novel - curve.base
    wanted = np.linspace(length[0], length[-1], points)
    keep = np.unique(np.searchsorted(length, wanted).clip(0, len(length) - 1))
    return TradeOff(curve.delta[keep], curve.base[keep], curve.novel[keep], curve.end[keep])


def choose_delta(
    curve: TradeOff, objective: str = "accuracy", max_base_loss: float | None = None
) -> float:
    """δ for an operating point.

    `accuracy` is where the adapter was trained to be, δ = 0. `harmonic` maximises the harmonic
    mean of base and novel accuracy. `max_base_loss` goes as far towards novel classes as base
    accuracy allows: at most that much below what it is without any novel class.
    """
    check_choice("objective", objective, OBJECTIVES)
    if np.isnan(curve.base).any() or np.isnan(curve.novel).any():
        return 0.0  # without base queries there is no curve to move along
    if max_base_loss is not None:
        index = curve.index_at_base_loss(max_base_loss)
    elif objective == "harmonic":
        index = curve.index_of_best_harmonic()
    else:
        return 0.0
    return _inside(curve, index)


def losses_within(share: float, n: int) -> int:
    """How many of n rows may be lost if the true share is to stay below `share`.

    By the exact binomial bound, with `CONFIDENCE`; 0 where n is too small to promise anything.

    >>> losses_within(0.05, 100), losses_within(0.05, 2000)
    (0, 80)
    """
    from scipy.special import betaincinv

    lost = np.arange(int(share * n) + 1)
    bound = betaincinv(lost + 1, np.maximum(n - lost, 1e-9), CONFIDENCE)
    return max(int(np.count_nonzero(bound <= share)) - 1, 0)


def _inside(curve: TradeOff, index: int) -> float:
    """A shift well inside the interval on which point `index` of the curve holds."""
    start, end = float(curve.delta[index]), float(curve.end[index])
    if np.isfinite(start) and np.isfinite(end):
        return (start + end) / 2
    if np.isfinite(end):
        return end - 1.0
    return start + 1.0 if np.isfinite(start) else 0.0
