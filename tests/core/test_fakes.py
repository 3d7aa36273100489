"""Fake classes: which rows are mixed, and what comes of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from cala.core.cala import normalise
from cala.core.fakes import FakePool, draw_pairs, draw_parents, mix_features, pool_shape
from cala.core.rows import ClassRows
from problems import blobs


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def rows_of(features, columns) -> ClassRows:
    return ClassRows.of(features, columns, int(columns.max()) + 1)


@given(st.integers(2, 30), st.integers(1, 60), st.integers(0, 1000))
def test_pairs_are_distinct(n_base, limit, seed):
    pairs = draw_pairs(n_base, limit, seeded(seed))
    assert len(pairs) == min(limit, n_base * (n_base - 1) // 2)
    assert len({frozenset(p) for p in pairs.tolist()}) == len(pairs)
    assert all(len(set(p)) == 2 for p in pairs.tolist())


@given(st.integers(2, 6), st.integers(1, 9), st.integers(0, 100))
def test_parents_belong_to_their_classes(n_base, count, seed):
    x, columns = blobs(n_base, 7, 3, seed)
    columns = seeded(seed).permutation(columns)
    pairs = draw_pairs(n_base, 100, seeded(seed))
    left, right, lam = draw_parents(rows_of(x, columns), pairs, count, seeded(seed))
    assert left.shape == right.shape == lam.shape == (len(pairs), count)
    assert (columns[left] == pairs[:, :1]).all()
    assert (columns[right] == pairs[:, 1:]).all()
    assert bool(((lam >= 0.4) & (lam <= 0.6)).all())


def test_lambda_fills_its_range():
    rows = rows_of(np.eye(2), np.array([0, 1]))
    _, _, lam = draw_parents(rows, np.array([[0, 1]]), 2000, seeded())
    assert 0.4 <= float(lam.min()) < 0.402
    assert 0.598 < float(lam.max()) <= 0.6
    assert float(lam.mean()) == pytest.approx(0.5, abs=0.01)


def test_without_keeping_the_spread_a_fake_image_is_eq_1():
    x, y = blobs(3, 6, 4)
    pairs = draw_pairs(3, 3, seeded())
    pool = mix_features(x, rows_of(x, y), pairs, count=5, rng=seeded(1), keep_spread=False)
    left, right, lam = draw_parents(rows_of(x, y), pairs, 5, seeded(1))
    for place in np.ndindex(3, 5):
        i, j = (normalise(x[side[place]]) for side in (left, right))
        np.testing.assert_allclose(pool.features[place], oracle.mix(i, j, lam[place]))


def test_feature_level_mixing_stays_between_its_parents():
    x, y = blobs(3, 10, 8, spread=0.1)
    pool = mix_features(x, rows_of(x, y), np.array([[0, 2]]), count=20, rng=seeded())
    centre = normalise(normalise(pool.features).mean(1))[0]
    cosines = [float(centre @ normalise(x[y == c].mean(0))) for c in range(3)]
    assert min(cosines[0], cosines[2]) > cosines[1]


def test_feature_level_fakes_scatter_as_much_as_real_classes():
    x, y = blobs(4, 200, 16)
    pairs = draw_pairs(4, 6, seeded())

    def scatter(rows):
        return float(((rows - rows.mean(-2, keepdims=True)) ** 2).sum(-1).mean())

    real = sum(scatter(normalise(x[y == c])) for c in range(4)) / 4
    made = {
        keep: mix_features(x, rows_of(x, y), pairs, count=400, rng=seeded(1), keep_spread=keep)
        for keep in (True, False)
    }
    assert scatter(made[True].features) == pytest.approx(real, rel=0.1)
    assert scatter(made[False].features) < 0.6 * real
    np.testing.assert_allclose(
        made[True].features.mean(1), made[False].features.mean(1), atol=0.03, rtol=0
    )


def test_shuffled_rows_make_the_same_fakes():
    x, y = blobs(4, 9, 5)
    order = seeded(1).permutation(len(y))
    pairs = draw_pairs(4, 6, seeded())
    first, second = (
        mix_features(a, rows_of(a, b), pairs, count=7, rng=seeded(2))
        for a, b in ((x, y), (x[order], y[order]))
    )
    np.testing.assert_allclose(second.features, first.features, atol=1e-12)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(1, 12), st.integers(0, 99))
def test_no_row_is_mixed_twice_into_a_fake_class_that_has_enough(sizes, images, seed):
    columns = np.repeat(np.arange(len(sizes)), sizes)
    x = seeded(seed).normal(size=(len(columns), 2))
    pairs = draw_pairs(len(sizes), 20, seeded(seed))
    left, right, _ = draw_parents(rows_of(x, columns), pairs, images, seeded(seed))
    for side, rows in enumerate((left, right)):
        assert (columns[rows] == pairs[:, side : side + 1]).all()
        for parent, used in zip(pairs[:, side].tolist(), rows, strict=True):
            assert len(np.unique(used)) == min(images, sizes[parent])


@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=30), st.integers(1, 99), st.integers(1, 30)
)
def test_the_shape_of_a_pool_fits_the_rows(sizes, pairs, images):
    found, each = pool_shape(np.array(sizes), pairs, images)
    assert found * each <= pairs * images
    assert found <= len(sizes) * (len(sizes) - 1) // 2
    assert each <= images
    assert each <= 2 or 2 * sum(size >= each for size in sizes) >= len(sizes)


@given(st.integers(2, 40), st.floats(0.01, 0.9), st.integers(0, 99))
def test_the_parts_of_a_pool_have_no_pair_in_common(size, share, seed):
    pairs = draw_pairs(12, size, seeded(seed))
    pool = FakePool(np.arange(len(pairs) * 6.0).reshape(-1, 3, 2), pairs)
    first, second = pool.split(share, seeded(seed))
    both = [tuple(pair) for part in (first, second) for pair in part.pairs.tolist()]
    assert sorted(both) == sorted(map(tuple, pairs.tolist()))
    assert min(len(first), len(second)) >= 1
    for part in (first, second):
        for images, pair in zip(part.features, part.pairs, strict=True):
            place = np.flatnonzero((pairs == pair).all(1))[0]
            assert np.array_equal(images, pool.features[place])
