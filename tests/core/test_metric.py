"""Whitening: the root of the inverse covariance, from few rows and from many."""

from __future__ import annotations

import numpy as np
import pytest

from cala.core.cala import normalise
from cala.core.metric import FEW_ROWS, default_shrinkage, fit_whitening


def slow(x, y, shrinkage):
    """Base mean and (Σ_w + shrinkage·(tr Σ_w / d)·I)⁻¹, class by class."""
    rooted = normalise(np.sign(x) * np.sqrt(np.abs(x)))
    mean = rooted.mean(0)
    centred = normalise(rooted - mean)
    residuals = np.concatenate([centred[y == c] - centred[y == c].mean(0) for c in np.unique(y)])
    freedom = len(x) - len(np.unique(y))
    within = residuals.T @ residuals / freedom
    if isinstance(shrinkage, str):
        shrinkage = default_shrinkage(x.shape[1], freedom)
    ridge = shrinkage * np.trace(within) / x.shape[1]
    return mean, np.linalg.inv(within + ridge * np.eye(x.shape[1]))


@pytest.mark.parametrize("rows", [6, 19, 20, 40, 200])
@pytest.mark.parametrize("shrinkage", ["auto", 0.3])
def test_the_root_is_one_of_the_inverse(rows, shrinkage):
    dim = 40  # the way of few rows ends at 20
    assert FEW_ROWS * dim == 20
    rng = np.random.default_rng(rows)
    x, y = rng.standard_normal((rows, dim)), np.arange(rows) % 3
    mean, root = fit_whitening(x, y, shrinkage)
    expected, inverse = slow(x, y, shrinkage)
    np.testing.assert_allclose(mean, expected, atol=1e-12)
    np.testing.assert_allclose(root @ root.T, inverse, rtol=1e-6, atol=1e-6 * np.abs(inverse).max())


@pytest.mark.parametrize("rows", [3, 60])
def test_without_scatter_nothing_is_whitened(rows):
    dim = 12
    x = np.repeat(np.random.default_rng(0).standard_normal((3, dim)), rows // 3, axis=0)
    _, root = fit_whitening(x, np.repeat(np.arange(3), rows // 3))
    np.testing.assert_array_equal(root, np.eye(dim))


def test_some_rows_alone():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((60, 30)), np.arange(60) % 4
    some = np.flatnonzero(y != 2)[:12]
    mean, root = fit_whitening(x, y, rows=some)
    other, same = fit_whitening(x[some], y[some])
    np.testing.assert_allclose(mean, other)
    np.testing.assert_allclose(root, same)
