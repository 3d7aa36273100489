"""The operating point keeps what it promises on the very episodes it was read from."""

from __future__ import annotations

import numpy as np
import pytest

from cala.core.operating_point import choose_delta, thinned
from cala.metrics import Answers, TradeOff, trade_off


def whole_curve(seed: int = 0, n: int = 3000):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 10, n)
    z = rng.normal(size=(n, 10))
    z[np.arange(n), y] += 1
    return trade_off(Answers.of(z, y, 6))


def at(curve, delta):
    index = np.searchsorted(curve.delta, delta, side="right") - 1
    return curve.base[index], curve.novel[index]


@pytest.mark.parametrize("points", [20, 200, 5000])
@pytest.mark.parametrize("seed", range(3))
def test_base_never_loses_more_than_was_allowed(points, seed):
    curve = whole_curve(seed)
    stored = thinned(curve, points)
    for loss in np.linspace(0, 0.3, 61):
        base, _ = at(curve, choose_delta(stored, max_base_loss=loss))
        assert base >= curve.base[0] - loss - 1e-9


@pytest.mark.parametrize("points", [20, 200, 5000])
def test_the_harmonic_point_is_the_one_that_the_stored_curve_shows(points):
    curve = whole_curve()
    stored = thinned(curve, points)
    best = (2 * stored.base * stored.novel / (stored.base + stored.novel)).max()
    base, novel = at(curve, choose_delta(stored, "harmonic"))
    assert 2 * base * novel / (base + novel) == pytest.approx(best, abs=1e-9)


def test_every_point_knows_where_it_ends():
    curve = whole_curve()
    np.testing.assert_array_equal(curve.end, [*curve.delta[1:], np.inf])
    stored = thinned(curve, 20)
    for start, end in zip(stored.delta, stored.end, strict=True):
        index = np.flatnonzero(curve.delta == start)[0]
        assert end == curve.end[index]


def test_without_a_curve_there_is_no_shift():
    unknown = np.full(1, np.nan)
    nothing = TradeOff(np.full(1, -np.inf), unknown, unknown)
    assert choose_delta(nothing, "harmonic") == choose_delta(nothing, max_base_loss=0.1) == 0.0
