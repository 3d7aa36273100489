"""p-values of 'nothing fits' against a slow version, and what must always hold."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from cala.core.rejection import FEW, FEWEST_IMAGES, MOST_IMAGES, T_WEIGHT, Rejection, p_value
from cala.core.rows import ClassRows
from problems import blobs


def learned(x, y):
    rows = ClassRows.of(x, y, int(y.max()) + 1)
    several = rows.where(rows.counts[y] > 1)
    return Rejection.of(x, y, several)


def slow_p(x, y, n_base, images, rejected, queries, known_spread=0.0):
    """One image and one class at a time, from the definitions.

    images : numbers of the genuine rows
    """

    def unit(row):
        root = [math.copysign(math.sqrt(abs(v)), v) for v in map(float, row)]
        length = math.sqrt(sum(v * v for v in root))
        return [v / length for v in root]

    def dot(a, b):
        return sum(p * q for p, q in zip(a, b, strict=True))

    far = [unit(r) for r in rejected]
    centre = [sum(v) / 2 / (len(far) + 3) for v in zip(*far, strict=True)] or [0] * len(x[0])

    def off(row):
        return [v - c for v, c in zip(row, centre, strict=True)]

    def seen(row):
        moved = off(unit(row))
        return [v / math.sqrt(dot(moved, moved)) for v in moved]

    rows = [unit(row) for row in x]
    classes = range(int(max(y)) + 1)
    members = {c: [i for i in range(len(rows)) if y[i] == c] for c in classes}
    totals = {}
    for c, own in members.items():  # lengths of a class are judged by their mean square
        moved = [off(rows[i]) for i in own]
        length = math.sqrt(sum(dot(m, m) for m in moved) / len(moved))
        totals[c] = [sum(column) / length for column in zip(*moved, strict=True)]
    sizes = {c: len(own) for c, own in members.items()}
    pairs = sum(k * (k - 1) for k in sizes.values())
    pooled = (sum(dot(v, v) for v in totals.values()) - len(rows)) / max(pairs, 1)

    def expected(total, k):
        t = (dot(total, total) - k + 10 * pooled) / (k * (k - 1) + 10)
        t = min(max(t, 0), 1)
        return t * math.sqrt(k / (1 + (k - 1) * t))

    def fit(image, c, without):
        """Score for a class; one of its own images is left out of it."""
        total, usual = totals[c], expected(totals[c], sizes[c])
        more = 0
        if without is not None and y[without] == c:
            total = [v - o for v, o in zip(total, image, strict=True)]
            more = usual - expected(total, sizes[c] - 1)
        return dot(image, total) / math.sqrt(dot(total, total)) + more - usual / 2

    def score(row, without=None):
        image = seen(row)
        near = sorted(dot(image, seen(r)) for r in rejected)[-3:]
        fits = [fit(image, c, without) for c in classes]
        return max(fits) - (0.75 * sum(near) / len(near) if near else 0)

    genuine = [(int(y[i]), score(x[i], i)) for i in images]
    groups = [[s for c, s in genuine if c < n_base]]
    if len(classes) > n_base:
        novel = [s for c, s in genuine if c >= n_base]
        if len(novel) < FEW:
            usual = [expected(totals[c], sizes[c]) for c in classes]
            more = np.mean(usual[n_base:]) - np.mean(usual[:n_base])
            novel += [s + more / 2 for s in groups[0]]
        groups.append(novel)
    found = []
    for query in queries:
        value, p = score(query), []
        for group in groups:
            count = len(group) / 2
            own, more = max(count - 1, 1), 20 if known_spread else 0
            squares = own * max(np.var(group, ddof=1), 1e-6)
            squares += more * known_spread**2 * (1 - pooled)
            spread = math.sqrt(squares / (own + more) * (1 + 1 / count))
            tail = student.cdf((value - np.mean(group)) / spread, own + more)
            rank = (1 + sum(s <= value for s in group)) / (1 + len(group))
            p.append((len(group) * rank + T_WEIGHT * tail) / (len(group) + T_WEIGHT))
        found.append(max(p))
    if len(rejected):
        plain = slow_p(x, y, n_base, images, [], queries, known_spread)
        return np.minimum(found, 1.5 * plain)
    return np.array(found)


@pytest.mark.parametrize("novel", [0, 1, 2])
@pytest.mark.parametrize("rejected", [0, 1, 5])
@pytest.mark.parametrize("shots", [1, 2, 12])
@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_it_is_the_slow_version(novel, rejected, shots, spread):
    rng = np.random.default_rng(0)
    x, y = blobs(3 + novel, 12, 5)
    base = y < 3
    more = np.concatenate([np.flatnonzero(y == c)[:shots] for c in range(3, 3 + novel)] or [[]])
    more = more.astype(np.int64)
    made = replace(learned(x[base], y[base]), spread=spread)
    if novel:
        made = made.added(x[more], y[more])
    strange = rng.normal(size=(rejected, 5))
    made = made.rejecting(strange) if rejected else made
    rows = np.concatenate([np.flatnonzero(base), more])
    images = [i for i in range(len(rows)) if (y[rows] == y[rows][i]).sum() > 1]
    queries = rng.normal(size=(20, 5)) + x[:20]
    expected = slow_p(x[rows], y[rows], 3, images, strange, queries, spread)
    np.testing.assert_allclose(made.p_values(queries), expected, rtol=2e-4, atol=1e-5)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40), st.lists(st.floats(-2, 2), max_size=9))
def test_p_is_a_share_and_rises_with_the_score(genuine, scores):
    ordered = np.sort(np.array(scores, dtype=np.float64))
    p = p_value(np.array(genuine), ordered)
    assert ((p > 0) & (p <= 1)).all()
    assert (np.diff(p) >= 0).all()


@pytest.mark.parametrize("rate", [0.02, 0.05, 0.2])
@pytest.mark.parametrize("count", [20, 300, 3000])
def test_the_false_rejection_rate_is_at_most_the_nominal_one(rate, count):
    rng = np.random.default_rng(1)
    found = [
        (p_value(rng.normal(size=count), rng.normal(size=500)) < rate).mean() for _ in range(200)
    ]
    assert np.mean(found) < rate + 0.005
    assert np.mean(found) > (rate - 0.005 if count > 1000 else rate / 6)


def test_what_is_far_is_found_from_two_classes_of_five_photos():
    x, y = blobs(2, 25, 64)
    few = np.arange(len(y)) % 25 < 5
    made = learned(x[few], y[few])
    strange = np.random.default_rng(3).normal(size=(50, 64)) * np.abs(x).mean()
    assert (made.p_values(strange) < 0.05).mean() > 0.95
    assert (made.p_values(x[~few]) < 0.05).mean() < 0.2


def test_rejected_images_make_their_like_less_familiar():
    x, y = blobs(6, 30, 8, seed=2)
    base, strange = y < 4, y == 5
    made = learned(x[base], y[base])
    taught = made.rejecting(x[strange][:10])
    assert taught.rejected.shape == (10, 8)
    found = [(m.p_values(x[strange][10:]) < 0.05).mean() for m in (made, taught)]
    assert found[1] > found[0]
    everything = np.concatenate([x, -x])
    assert (taught.p_values(everything) <= 1.5 * made.p_values(everything)).all()
    assert (taught.p_values(x[base]) < 0.05).mean() < 0.1


def test_forgetting_takes_learning_back():
    x, y = blobs(6, 10, 8)
    base = y < 4
    before = learned(x[base], y[base])
    for label in (4, 5):
        shots = np.flatnonzero(y == label)[:5]
        after = before.added(x[shots], y[shots] * 0 + 4).without(4)
        np.testing.assert_array_equal(after.p_values(x), before.p_values(x))
    fewer = before.without(1)
    assert fewer.n_base == 3
    rest = base & (y != 1)
    again = learned(x[rest], np.unique(y[rest], return_inverse=True)[1])
    np.testing.assert_allclose(fewer.p_values(x), again.p_values(x), rtol=1e-4)


@pytest.mark.parametrize("rest", [0, 1, 4])
def test_removed_images_leave_nothing_behind(rest):
    x, y = blobs(5, 10, 8)
    base = y < 4
    before = learned(x[base], y[base])
    shots = np.flatnonzero(y == 4)[:5]
    grown = before.added(x[shots], y[shots])
    if rest:
        kept, gone = shots[:rest], shots[rest:]
        fewer = grown.removed(x[gone], 4)
        again = before.added(x[kept], y[kept])
        assert fewer.columns.tolist() == again.columns.tolist()
        np.testing.assert_allclose(fewer.p_values(x), again.p_values(x), rtol=1e-3)
    fewer = before.removed(x[: 10 - max(rest, 1)], 0)
    assert (fewer.columns == 0).sum() == (rest if rest > 1 else 0)
    assert np.isfinite(fewer.p_values(x)).all()


def test_examples_of_a_known_class_are_folded_into_it():
    x, y = blobs(4, 20, 8)
    half = np.arange(len(y)) % 20 < 10
    grown = learned(x[half], y[half]).added(x[~half], y[~half])
    whole = learned(x, y)
    assert grown.table.counts.tolist() == whole.table.counts.tolist()
    np.testing.assert_allclose(grown.table.sums, whole.table.sums, rtol=1e-5)


def test_arrays_restore_it():
    x, y = blobs(5, 10, 8)
    base = y < 3
    made = learned(x[base], y[base]).added(x[~base], y[~base]).rejecting(x[:3] + 1)
    made = replace(made, spread=0.1)
    arrays = {name: array.copy() for name, array in made.arrays().items()}
    np.testing.assert_array_equal(Rejection.restored(arrays).p_values(x), made.p_values(x))


def test_what_version_0_1_kept_turns_it_off():
    arrays = {"shots": np.ones(1), "scores": np.ones((1, 3)), "sizes": np.ones(1)}
    made = Rejection.restored(arrays)
    assert not made.is_on
    assert made.added(np.ones((2, 3)), np.zeros(2, np.int64)).p_values(
        np.ones((2, 3))
    ).tolist() == [
        1,
        1,
    ]


@pytest.mark.parametrize("photos", [1, 2, 3])
def test_too_few_images_turn_it_off(photos):
    x, y = blobs(2, photos, 6)
    made = learned(x, y)
    assert made.is_on == (2 * photos >= FEWEST_IMAGES and photos > 1)
    p = made.p_values(x)
    assert ((p > 0) & (p <= 1)).all()


def test_it_keeps_no_more_images_than_it_needs():
    x, y = blobs(4, 200, 6)
    base = y < 2
    made = learned(x[base], y[base]).added(x[~base], y[~base])
    assert (made.columns >= 2).sum() == MOST_IMAGES
    assert np.isfinite(made.p_values(x)).all()


def test_images_that_are_all_the_same():
    x = np.repeat(np.eye(3, 6), 4, axis=0)
    made = learned(x, np.arange(3).repeat(4))
    p = made.p_values(np.concatenate([x, -x]))
    assert (p[:12] > 0.05).all()
    assert (p[12:] < 0.05).all()
