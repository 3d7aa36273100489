"""Concentration: slope and offset of base logits from tightness."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from cala.core.cala import Episode, PrototypeTable, cosine_logits, normalise
from cala.core.calibration import (
    RIDGE_ROWS,
    SHARPEST,
    SLOPE_UNIT,
    SOFTEST,
    Temperature,
    fit_concentration,
    fit_scale,
    leave_one_out,
    standardised_tightness,
)


def uneven_classes(n_classes=20, per_class=60, dim=12):
    """Half of the classes are tight, half are spread out."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(n_classes, dim))
    y = np.repeat(np.arange(n_classes), per_class)
    spread = np.where(np.arange(n_classes) % 2, 0.5, 1.5)
    x = centres[y] + spread[y, None] * rng.normal(size=(len(y), dim))
    return normalise(x), y


def left_out(unit, y):
    table = PrototypeTable.empty(0, unit.shape[1]).extended(unit, y)
    return leave_one_out(cosine_logits(unit, normalise(table.means)), table, y), table


def cross_entropy(z, y):
    return float(-log_softmax(z, axis=1)[np.arange(len(y)), y].mean())


def test_tight_classes_get_a_steeper_slope_and_a_lower_offset():
    unit, y = uneven_classes()
    cosines, table = left_out(unit, y)
    tau = standardised_tightness(table)
    scale = fit_scale(cosines, y)
    found = fit_concentration(cosines, y, tau, scale, free_scale=True)
    tight = np.arange(20) % 2 == 1
    assert found.slope[tight].min() > found.slope[~tight].max()
    assert found.offset[tight].max() < found.offset[~tight].min()
    ours = cross_entropy(cosines * found.slope + found.offset, y)
    assert ours < cross_entropy(scale * cosines, y)


def test_a_given_scale_stays():
    unit, y = uneven_classes()
    cosines, table = left_out(unit, y)
    found = fit_concentration(cosines, y, standardised_tightness(table), 16.0, free_scale=False)
    np.testing.assert_allclose(np.exp(np.log(found.slope).mean()), 16.0)


def test_unknown_or_equal_tightness_changes_nothing():
    table = PrototypeTable(np.eye(4), np.ones(4, dtype=np.int64))
    assert standardised_tightness(table).tolist() == [0.0] * 4


def test_noise_does_not_flatten_the_logits():
    """Random labels want no scale at all; it stays in its range."""
    rng = np.random.default_rng(0)
    unit = normalise(rng.normal(size=(120, 6)))
    y = np.repeat(np.arange(12), 10)
    cosines, table = left_out(unit, y)
    found = fit_concentration(cosines, y, standardised_tightness(table), 1.0, free_scale=True)
    assert float(np.log(found.slope).mean()) >= -1e-9


def test_the_fit_is_at_the_minimum_of_the_penalised_cross_entropy():
    unit, y = uneven_classes(per_class=20)
    cosines, table = left_out(unit, y)
    tau = standardised_tightness(table)
    found = fit_concentration(cosines, y, tau, 10.0, free_scale=True)
    b = float((found.offset / tau).mean())
    slope, intercept = np.polyfit(tau, np.log(found.slope), 1)

    def objective(b, a, log_scale):
        logits = cosines * np.exp(log_scale + SLOPE_UNIT * a * tau) + b * tau
        penalty = RIDGE_ROWS / len(y) * (b**2 + a**2)
        return cross_entropy(logits, y) + penalty

    best = np.array([b, slope / SLOPE_UNIT, intercept])
    for direction in np.eye(3):
        for step in (-0.02, 0.02):
            assert objective(*best) < objective(*(best + step * direction))


def test_probabilities_are_a_softmax_at_the_winners_temperature():
    logits = np.random.default_rng(3).normal(scale=[1, 5, 3], size=(60, 3))
    found = Temperature(2.0, 0.5).probabilities(logits.copy(), n_base=2)
    novel = logits.argmax(1) == 2
    assert 0 < novel.sum() < 60
    np.testing.assert_allclose(found[novel], softmax(2 * logits[novel], axis=1))
    np.testing.assert_allclose(found[~novel], softmax(logits[~novel] / 2, axis=1))
    assert (found.argmax(1) == logits.argmax(1)).all()


def test_probabilities_of_huge_logits_are_numbers():
    huge = np.array([[1e6, -1e6], [-1e30, 1e30]])
    assert Temperature().probabilities(huge, 1).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("true", [0.7, 3.0])
def test_the_temperature_that_made_the_rows_is_found_on_each_side(true):
    rng = np.random.default_rng(0)
    played, shifts = [], []
    for n_base in (3, 4):  # trials differ in how many of the classes are base
        logits = rng.normal(scale=4, size=(4000, 6))
        side = np.where(logits.argmax(1) < n_base, 1.0, true)[:, None]
        noise = rng.gumbel(size=logits.shape)
        columns = (logits / side + noise).argmax(1)
        played.append(Episode(None, None, (logits, columns)))
        shifts.append(np.zeros(6 - n_base))
    found = Temperature.of(played, shifts)
    assert found.base == pytest.approx(1.0, rel=0.1)
    assert found.novel == pytest.approx(true, rel=0.1)


def test_a_few_rows_that_are_all_right_are_no_certainty():
    """The rule of succession: n of n right is (n + 1) / (n + 2), however far apart classes are."""
    for n in (4, 10, 100):
        cosines = np.eye(2)[np.arange(n) % 2]
        scale = fit_scale(cosines, np.arange(n) % 2)
        np.testing.assert_allclose(softmax([scale, 0.0])[0], (n + 1) / (n + 2), rtol=1e-4)


def test_nothing_says_nothing():
    assert Temperature.of([], []) == Temperature(1.0, 1.0)
    assert Temperature.of([Episode(None, None)], [np.zeros(1)]) == Temperature(1.0, 1.0)
    one = Episode(None, None, (np.array([[50.0, 0.0]]), np.array([0])))
    assert SHARPEST <= Temperature.of([one], [np.zeros(1)]).base <= SOFTEST
    assert Temperature.of([one], [np.full(1, 60.0)]).base == 1.0, "a novel class wins now"
