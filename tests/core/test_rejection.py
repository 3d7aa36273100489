"""p-values of 'nothing fits' against a slow version, and what must always hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cala.core.rejection import MOST_POINTS, Rejection, thinned

SCORES = st.lists(st.integers(-8, 8).map(lambda i: i / 2), min_size=1, max_size=12)
TABLES = st.dictionaries(st.sampled_from([1, 2, 5, 10, 20]), SCORES, max_size=4)


def slow(scores, shots, n_base, base, novel):
    """One image and one class at a time."""
    found = []
    for row in scores:
        p = []
        for c, score in enumerate(row):
            if c < n_base or not novel:
                table = base
            else:
                below = [k for k in novel if k <= shots[c]]
                table = novel[max(below) if below else min(novel)]
            p.append((1 + sum(s <= score for s in table)) / (1 + len(table)))
        found.append(max(p))
    return np.array(found)


def tables(base, novel):
    return Rejection.of(np.array(base), {k: np.array(v) for k, v in novel.items()})


@st.composite
def problems(draw):
    base, novel = draw(SCORES), draw(TABLES)
    classes = draw(st.integers(2, 7))
    n_base = draw(st.integers(1, classes))
    shots = draw(st.lists(st.integers(1, 30), min_size=classes, max_size=classes))
    rows = st.lists(st.integers(-9, 9).map(float), min_size=classes, max_size=classes)
    return base, novel, n_base, shots, draw(st.lists(rows, min_size=1, max_size=4))


def p_of(problem, scores=None, shots=None):
    base, novel, n_base, own, given_scores = problem
    z = np.array(given_scores if scores is None else scores, dtype=np.float64)
    return tables(base, novel).p_values(z, np.array(own if shots is None else shots), n_base)


@given(problems())
def test_it_is_the_slow_version(problem):
    base, novel, n_base, shots, scores = problem
    np.testing.assert_allclose(p_of(problem), slow(scores, shots, n_base, base, novel))


@given(problems(), st.integers(0, 6), st.floats(0, 5))
def test_a_higher_score_never_lowers_p(problem, column, more):
    raised = [list(row) for row in problem[4]]
    for row in raised:
        row[column % len(row)] += more
    assert (p_of(problem, raised) >= p_of(problem)).all()


@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_classes_does_not_matter(problem, random):
    n_base, shots, scores = problem[2:]
    first, last = list(range(n_base)), list(range(n_base, len(shots)))
    random.shuffle(first)
    random.shuffle(last)
    order = first + last
    moved = p_of(problem, [[row[c] for c in order] for row in scores], [shots[c] for c in order])
    np.testing.assert_array_equal(moved, p_of(problem))


@given(problems(), st.integers(1, 30), st.integers(-9, 9))
def test_another_class_can_only_make_images_more_familiar(problem, k, score):
    grown = p_of(problem, [[*row, float(score)] for row in problem[4]], [*problem[3], k])
    assert (grown >= p_of(problem)).all()


@given(problems())
def test_arrays_restore_it(problem):
    base, novel, n_base, shots, scores = problem
    before = tables(base, novel)
    after = Rejection(**{k: v.copy() for k, v in vars(before).items()})
    z = np.array(scores)
    for name, value in vars(before).items():
        assert np.array_equal(value, vars(after)[name])
    assert np.array_equal(
        before.p_values(z, np.array(shots), n_base), after.p_values(z, np.array(shots), n_base)
    )


@pytest.mark.parametrize(("k", "row"), [(1, 1), (2, 1), (4, 1), (5, 2), (19, 2), (20, 3), (500, 3)])
def test_a_class_takes_the_largest_k_not_above_its_own(k, row):
    made = tables([0.0], {5: [0.0], 2: [0.0], 20: [0.0]})
    assert made.row_of(np.array([1, k]), 1).tolist() == [0, row]


def test_without_base_scores_it_is_off():
    assert not Rejection.off().is_on
    assert Rejection.off().p_values(np.zeros((3, 2)), np.ones(2), 2).tolist() == [1, 1, 1]


@pytest.mark.parametrize("n", [3, MOST_POINTS, MOST_POINTS + 1, 5000])
def test_thinning_keeps_quantiles(n):
    scores = np.random.default_rng(0).normal(size=n)
    kept = thinned(scores)
    assert len(kept) == min(n, MOST_POINTS)
    assert np.array_equal(kept, np.sort(kept))
    for q in (0.05, 0.5, 0.95):
        assert abs((scores < np.quantile(kept, q)).mean() - q) < 2 / min(n, MOST_POINTS)


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.2])
def test_the_false_rejection_rate_is_the_nominal_one(rate):
    rng = np.random.default_rng(1)
    found = []
    for _ in range(40):
        made = Rejection.of(rng.normal(size=400), {5: rng.normal(size=700) - 2})
        base = np.column_stack([rng.normal(size=1000), np.full(1000, -99.0)])
        new = np.column_stack([np.full(1000, -99.0), base[:, 0] - 2])
        shots = np.array([50, 5])
        found.append([(made.p_values(z, shots, 1) < rate).mean() for z in (base, new)])
    # each table's own error has a spread of sqrt(rate (1 - rate) / 400), averaged over 40 of them
    slack = 4 * (rate * (1 - rate) / 400 / 40) ** 0.5 + 1 / 400
    assert np.abs(np.mean(found, 0) - rate).max() < slack
