"""Concentration: slope and offset of base logits from tightness."""

from __future__ import annotations

import numpy as np
import torch

from cala.core.calibration import (
    RIDGE_ROWS,
    SLOPE_UNIT,
    fit_concentration,
    standardised_tightness,
)
from cala.core.logits import cosine_logits, fit_scale, leave_one_out_cosine
from cala.core.prototypes import PrototypeTable, normalise


def uneven_classes(n_classes=20, per_class=60, dim=12):
    """Half of the classes are tight, half are spread out."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(n_classes, dim))
    y = np.repeat(np.arange(n_classes), per_class)
    spread = np.where(np.arange(n_classes) % 2, 0.5, 1.5)
    x = centres[y] + spread[y, None] * rng.normal(size=(len(y), dim))
    return normalise(torch.tensor(x)), torch.tensor(y)


def left_out(unit, y):
    table = PrototypeTable.empty(unit.shape[1]).extended(unit, y)
    return leave_one_out_cosine(cosine_logits(unit, table.means, 1.0), table, y), table


def test_tight_classes_get_a_steeper_slope_and_a_lower_offset():
    unit, y = uneven_classes()
    cosines, table = left_out(unit, y)
    tau = standardised_tightness(table)
    scale = fit_scale(cosines, y)
    found = fit_concentration(cosines, y, tau, scale, free_scale=True)
    tight = torch.arange(20) % 2 == 1
    assert found.slope[tight].min() > found.slope[~tight].max()
    assert found.offset[tight].max() < found.offset[~tight].min()
    loss = torch.nn.functional.cross_entropy
    assert loss(cosines * found.slope + found.offset, y) < loss(scale * cosines, y)


def test_a_given_scale_stays():
    unit, y = uneven_classes()
    cosines, table = left_out(unit, y)
    found = fit_concentration(cosines, y, standardised_tightness(table), 16.0, free_scale=False)
    np.testing.assert_allclose(found.slope.log().mean().exp(), 16.0)


def test_unknown_or_equal_tightness_changes_nothing():
    table = PrototypeTable(torch.eye(4, dtype=torch.float64), torch.ones(4, dtype=torch.int64))
    assert torch.equal(standardised_tightness(table), torch.zeros(4, dtype=torch.float64))


def test_noise_does_not_flatten_the_logits():
    """Random labels want no scale at all; it stays in its range."""
    rng = np.random.default_rng(0)
    unit = normalise(torch.tensor(rng.normal(size=(120, 6))))
    y = torch.arange(12).repeat_interleave(10)
    cosines, table = left_out(unit, y)
    found = fit_concentration(cosines, y, standardised_tightness(table), 1.0, free_scale=True)
    assert float(found.slope.log().mean()) >= -1e-9


def test_the_fit_is_at_the_minimum_of_the_penalised_cross_entropy():
    unit, y = uneven_classes(per_class=20)
    cosines, table = left_out(unit, y)
    tau = standardised_tightness(table)
    found = fit_concentration(cosines, y, tau, 10.0, free_scale=True)
    b = float((found.offset / tau).mean())
    slope, intercept = np.polyfit(tau.numpy(), found.slope.log().numpy(), 1)

    def objective(b, a, log_scale):
        logits = cosines * torch.exp(log_scale + SLOPE_UNIT * a * tau) + b * tau
        penalty = RIDGE_ROWS / len(y) * (b**2 + a**2)
        return float(torch.nn.functional.cross_entropy(logits, y)) + penalty

    best = np.array([b, slope / SLOPE_UNIT, intercept])
    for direction in np.eye(3):
        for step in (-0.02, 0.02):
            assert objective(*best) < objective(*(best + step * direction))
