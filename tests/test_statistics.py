"""Intervals over draws and test images."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cala.statistics import mean_interval, paired

DRAWS = [1.0, 2.0, 4.0, 8.0, 3.0]


def test_two_errors_are_added():
    """Images as many as groups: the jackknife of a mean is its usual squared error."""
    images = np.random.default_rng(0).normal(size=20)
    without = (images.sum() - images) / 19
    draws, of_images = stats.sem(DRAWS) ** 2, stats.sem(images) ** 2
    total = draws + of_images
    degrees = total**2 / (draws**2 / 4 + of_images**2 / 19)
    found = mean_interval(DRAWS, without)
    alone = stats.t.ppf(0.975, 4) * np.sqrt(draws)
    assert found.half == pytest.approx(
        max(alone, stats.t.ppf(0.975, degrees) * np.sqrt(total)), rel=1e-12
    )
    assert (found.n, found.groups) == (5, 20)
    large = mean_interval(DRAWS, 100 * without)
    assert large.half == pytest.approx(stats.t.ppf(0.975, 19) * 100 * stats.sem(images), rel=0.01)


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.3, 1.0])
def test_test_images_never_make_it_narrower(spread):
    """Two draws have one degree of freedom, which a few groups of images must not hide."""
    without = spread * np.random.default_rng(1).normal(size=20)
    assert mean_interval([1.0, 2.0], without).half >= mean_interval([1.0, 2.0]).half


def test_all_draws_may_agree():
    found = mean_interval([2.0, 2.0, 2.0], [1.9, 2.0, 2.1])
    assert found.half == pytest.approx(stats.t.ppf(0.975, 2) * np.sqrt(2 / 3 * 0.02))
    assert mean_interval([2.0, 2.0], [2.0, 2.0]).half == 0


def test_what_is_not_known_of_images():
    nan = float("nan")
    assert mean_interval(DRAWS, [nan] * 20) == mean_interval(DRAWS)
    some = mean_interval(DRAWS, [1.0, 2.0, nan])
    assert np.isnan(some.half), "without one group nothing is left to average"
    assert not some.clear
    assert np.isnan(mean_interval([1.0], [1.0, 2.0]).half)


def test_differences_are_paired_on_groups_too():
    ours, theirs = np.array([1.0, 5.0, 9.0]), np.array([0.0, 4.0, 8.0])
    same = paired([3.0, 4.0], [2.0, 3.0], ours, theirs)
    assert (same.mean, same.half, same.groups) == (1.0, 0.0, 3)
    assert paired([3.0, 4.0], [2.0, 3.0], ours, None).groups == 0
    assert paired([3.0, 4.0], [2.0, 3.0], ours, theirs[:2]).groups == 0, "of other images"
