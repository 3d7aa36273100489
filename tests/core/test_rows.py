"""Rows by class: the same whatever order they arrive in, drawn evenly, and split into folds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cala.core.rows import CHUNK, ClassRows, chunks, parts_of

FOLDS = 5
LABELS = st.lists(st.integers(0, 6), min_size=1, max_size=80)


def rows_of(labels, seed=0):
    features = np.random.default_rng(seed).normal(size=(len(labels), 3))
    return features, ClassRows.of(features, np.array(labels), 7)


def seeded(seed=0):
    return np.random.default_rng(seed)


@given(LABELS, st.integers(0, 99))
def test_rows_are_grouped_by_class_however_they_arrive(labels, seed):
    features, rows = rows_of(labels, seed)
    columns = np.array(labels)
    assert sorted(rows.order.tolist()) == list(range(len(labels)))
    assert np.array_equal(columns[rows.order], rows.columns)
    assert np.array_equal(rows.counts, np.bincount(labels, minlength=7))
    for c in set(labels):
        assert rows.ranks[rows.columns == c].tolist() == list(range(labels.count(c)))
    order = seeded(seed).permutation(len(labels))
    again = ClassRows.of(features[order], columns[order], 7)
    assert np.array_equal(features[order][again.order], features[rows.order])


@given(LABELS, st.integers(0, 8), st.integers(0, 99))
def test_draws_are_balanced(labels, count, seed):
    _, rows = rows_of(labels)
    columns = np.array(labels)
    drawn = rows.draw(count, seeded(seed))
    assert len(set(drawn.order.tolist())) == len(drawn)
    assert np.array_equal(columns[drawn.order], drawn.columns)
    for c in set(labels):
        assert int((drawn.columns == c).sum()) == min(count, labels.count(c))


@given(LABELS, st.integers(0, 99))
def test_folds_are_even_and_leave_something_of_every_class(labels, seed):
    _, rows = rows_of(labels)
    columns = np.array(labels)
    folds = rows.folds(FOLDS, seeded(seed))
    assert len(folds) == FOLDS
    every = np.concatenate([fold.order for fold in folds])
    assert len(set(every.tolist())) == len(every)
    for c in set(labels):
        own = labels.count(c)
        sizes = [int((fold.columns == c).sum()) for fold in folds]
        for fold in folds:
            assert np.array_equal(columns[fold.order], fold.columns)
        if own == 1:
            assert sizes == [0] * FOLDS
            continue
        assert sum(sizes) == own
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) < own


@given(LABELS, st.integers(1, 100), st.integers(0, 99))
def test_thinned_and_marked_rows_keep_their_classes(labels, most, seed):
    _, rows = rows_of(labels)
    columns = np.array(labels)
    thin = rows.thinned(most, seeded(seed))
    assert len(thin) == min(most, len(labels))
    assert np.array_equal(columns[thin.order], thin.columns)
    mask = seeded(seed).random(len(labels)) < 0.5
    kept = rows.where(mask)
    assert sorted(kept.order.tolist()) == np.flatnonzero(mask).tolist()
    assert np.array_equal(columns[kept.order], kept.columns)


@given(st.integers(1, 40), st.sampled_from([1, CHUNK // 8, CHUNK, 2 * CHUNK]))
def test_chunks_cover_everything_once(n, dim):
    found = [i for part in chunks(n, dim) for i in range(part.start, part.stop)]
    assert found == list(range(n))


def test_parts_of_some_rows_are_theirs():
    features, _ = rows_of([0, 1, 2, 0, 1])
    columns, rows = np.array([0, 1, 2, 0, 1]), np.array([4, 0])
    ((part, own),) = parts_of(features, columns, rows)
    assert np.array_equal(part, features[rows])
    assert own.tolist() == [1, 0]
