"""Pairs of base classes: listed where they are few, drawn where they are many."""

from __future__ import annotations

import numpy as np
import pytest

from cala.core import fakes
from cala.core.fakes import draw_pairs


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_few_pairs_are_the_shuffled_list():
    every = np.array([(i, j) for i in range(60) for j in range(i + 1, 60)])
    order = seeded(3).permutation(len(every))[:600]
    assert np.array_equal(draw_pairs(60, 600, seeded(3)), every[order])


@pytest.mark.parametrize(("n_base", "limit"), [(10_000, 600), (100_000, 1), (3_000, 5_000)])
def test_many_classes_give_distinct_pairs_without_a_list_of_all(monkeypatch, n_base, limit):
    def refuse(*_, **__):
        raise AssertionError("all pairs were listed")

    monkeypatch.setattr(np, "triu_indices", refuse)
    pairs = draw_pairs(n_base, limit, seeded())
    assert pairs.shape == (limit, 2)
    assert pairs.dtype == np.int64
    assert bool((pairs[:, 0] < pairs[:, 1]).all())
    assert int(pairs.min()) >= 0
    assert int(pairs.max()) < n_base
    assert len({tuple(pair) for pair in pairs.tolist()}) == limit
    assert np.array_equal(pairs, draw_pairs(n_base, limit, seeded()))


def test_drawn_pairs_are_spread_evenly(monkeypatch):
    monkeypatch.setattr(fakes, "LISTED_PAIRS", 0)
    counts = np.zeros((5, 5))
    for seed in range(2000):
        first, second = draw_pairs(5, 2, seeded(seed)).T
        counts[first, second] += 1
    found = counts[counts > 0]
    assert len(found) == 10
    assert float(found.min()) > 320  # 400 expected of each of the ten pairs
    assert float(found.max()) < 480


def test_most_of_all_pairs_are_listed_all_the_same(monkeypatch):
    monkeypatch.setattr(fakes, "LISTED_PAIRS", 0)
    assert len(draw_pairs(6, 100, seeded())) == 15
