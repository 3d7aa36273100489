"""Recursive least squares against solving once, and leave-one-out against leaving out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cala.core.least_squares import RidgeClassifier

RIDGE, SIZE = 0.3, 12
RNG = np.random.default_rng(0)
PHI = torch.tensor(RNG.uniform(size=(90, SIZE)))
COLUMNS = torch.tensor([*RNG.permutation(np.repeat(range(4), 15)), *np.repeat([4, 5, 6], 10)])
WEIGHT = torch.where(COLUMNS < 4, 1.0, 7.0)


def batch(phi, columns, weight, n_classes=7):
    """The ridge solution (k, C) of weighted rows, by the normal equations."""
    x, w = phi.numpy(), weight.numpy()[:, None]
    y = np.eye(n_classes)[columns.numpy()]
    return np.linalg.solve(x.T @ (w * x) + RIDGE * np.eye(x.shape[1]), x.T @ (w * y))


def recursive(sessions):
    first = slice(0, 60)
    solved = RidgeClassifier.solve([(PHI[first], COLUMNS[first])], 4, SIZE, RIDGE)
    for rows in sessions:
        psi = solved.coordinates(PHI[rows])
        solved = solved.extended(psi, COLUMNS[rows], WEIGHT[rows])
    return solved


@pytest.mark.parametrize("size", [1, 4, 30])
def test_sessions_one_by_one_equal_solving_once_with_everything(size):
    solved = recursive([slice(i, min(i + size, 90)) for i in range(60, 90, size)])
    assert len(solved.seen) <= 2 * SIZE
    found = solved.scores(solved.coordinates(PHI)).numpy()
    assert np.abs(found - PHI.numpy() @ batch(PHI, COLUMNS, WEIGHT)).max() < 1e-8


def test_the_base_alone_is_a_batch_solve():
    solved = recursive([])
    expected = PHI.numpy() @ batch(PHI[:60], COLUMNS[:60], WEIGHT[:60], 4)
    assert np.abs(solved.scores(solved.coordinates(PHI)).numpy() - expected).max() < 1e-8


def test_a_weight_is_a_repetition():
    rows = slice(60, 70)
    weighted = recursive([rows])
    repeated = recursive([])
    psi = repeated.coordinates(PHI[rows]).repeat(7, 1)
    repeated = repeated.extended(psi, COLUMNS[rows].repeat(7), torch.ones(70))
    torch.testing.assert_close(weighted.weights, repeated.weights, rtol=0, atol=1e-10)


def test_leave_one_out_equals_leaving_out():
    solved = recursive([slice(60, 75), slice(75, 90)])
    psi = solved.coordinates(PHI)
    own = COLUMNS.clone()
    own[3] = -1
    found = solved.leave_one_out(solved.scores(psi), psi, own, WEIGHT).numpy()
    for row in (0, 17, 59, 60, 71, 89):
        rest = torch.arange(90) != row
        expected = PHI[row].numpy() @ batch(PHI[rest], COLUMNS[rest], WEIGHT[rest])
        assert np.abs(found[row] - expected).max() < 1e-8
    assert np.array_equal(found[3], solved.scores(psi)[3].numpy())


def test_a_forgotten_column_leaves_the_others_and_its_rows_count_for_none():
    solved = recursive([slice(60, 90)]).without(5)
    found = solved.scores(solved.coordinates(PHI)).numpy()
    expected = np.delete(PHI.numpy() @ batch(PHI, COLUMNS, WEIGHT), 5, axis=1)
    assert np.abs(found - expected).max() < 1e-8


def test_an_older_copy_is_not_touched():
    solved = recursive([slice(60, 70)])
    weights, seen = solved.weights.clone(), solved.seen.clone()
    for rows in (slice(70, 80), slice(80, 90)):
        solved.extended(solved.coordinates(PHI[rows]), COLUMNS[rows], WEIGHT[rows])
    assert torch.equal(solved.weights, weights)
    assert torch.equal(solved.seen, seen)
