"""GKEAL: one solution whatever the sessions, fair to its own rows, cheap to fork; its two parts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from cala.heads import make_head
from cala.heads.base_data import BaseData
from cala.systems.gkeal import (
    RidgeClassifier,
    draw_centres,
    gaussian_features,
    median_distance,
)
from problems import blobs
from refusals import refused

X, Y = blobs(9, 20, 6)
BASE = Y < 5


def fitted(x=X[BASE], y=Y[BASE], **options):
    options = {"centres": 30, "sigma": 0.8, "repeat": 3.0, "scale": 1.0, **options}
    return make_head("gkeal", **options).fit_base(BaseData(x, y))


def once(head, x, y, n_classes, skip=None):
    """Scores by the normal equations of all rows at once, from the head's own centres."""
    phi = gaussian_features(head.metric(x), head._centres, head.sigma)
    weight = np.where(y < 5, 1.0, 3.0)
    if skip is not None:
        weight[skip] = 0
    target = np.eye(n_classes)[y]
    gram = phi.T @ (weight[:, None] * phi) + head.config["ridge"] * np.eye(phi.shape[1])
    return phi @ np.linalg.solve(gram, phi.T @ (weight[:, None] * target))


@pytest.mark.parametrize("metric", ["cosine", "whitened"])
def test_sessions_one_by_one_equal_solving_once_with_everything(metric):
    head = fitted(metric=metric)
    for rows in (Y == 5, (Y == 6) | (Y == 7), Y == 8):
        head.add(X[rows], Y[rows])
    assert np.abs(head.logits(X) - once(head, X, Y, 9)).max() < 1e-8


def test_leave_one_out_equals_leaving_out():
    head = fitted().add(X[~BASE], Y[~BASE])
    found = head.unit_logits(head.embed(X), Y)
    for row in (0, 50, 99, 100, 179):
        assert np.abs(found[row] - once(head, X, Y, 9, skip=row)[row]).max() < 1e-8


def test_more_shots_than_centres_keep_the_solution():
    rng = np.random.default_rng(1)
    more = rng.normal(size=(200, 6))
    labels = rng.integers(5, 9, size=200)
    head = fitted()
    for part in range(0, 200, 25):
        head.add(more[part : part + 25], labels[part : part + 25])
    order = [*range(5), *(c for c in head.classes if c >= 5)]
    x, y = np.concatenate([X[BASE], more]), np.concatenate([Y[BASE], labels])
    expected = once(head, x, y, 9)[:, order]
    assert np.abs(head.logits(x) - expected).max() < 1e-8


def test_centres_come_from_every_class_though_rows_are_sorted_by_class():
    head = fitted(X, Y)
    rows = cdist(head._centres, head.embed(X)[:, :6]).argmin(1)
    assert set(Y[rows].tolist()) == set(range(9))
    assert not np.array_equal(head._centres, fitted(X, Y, seed=1)._centres)


def test_auto_lets_five_shots_weigh_as_much_as_a_base_class():
    assert fitted(repeat="auto").repeat == 20 / 5
    assert fitted(X[::5], Y[::5], repeat="auto").repeat == 1.0


def test_the_scale_makes_probabilities_of_scores():
    """Cross-entropy of rows that it has not seen is near its best, within a factor of two."""
    half = np.arange(len(Y)) % 2 == 0
    head = fitted(X[half], Y[half], scale="auto")
    scores, y = head.logits(X[~half]) / head.scale, Y[~half]
    right = np.take_along_axis(scores, y[:, None], 1)[:, 0]
    slopes = [head.scale * f for f in (0.4, 1, 2.5)]
    loss = [(logsumexp(s * scores, axis=1) - s * right).mean() for s in slopes]
    assert loss[1] < min(loss[0], loss[2])


def test_augmented_rows_are_rows_like_others():
    """The solution with copies is that of shots and moved shots, all written out."""
    head, plain = fitted(copies=2), fitted()
    moves = head._moves
    assert moves.shape == (2, 6)
    order = [(Y == 5), (Y == 6) | (Y == 7)]
    for rows in order:
        head.add(X[rows], Y[rows])
    x, y = [plain.metric(X[BASE])], [Y[BASE]]
    for rows in order:
        unit = plain.metric(X[rows])
        for vectors in (unit, *(unit + move for move in moves)):
            x.append(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
            y.append(Y[rows])
    phi = gaussian_features(np.concatenate(x), head._centres, head.sigma)
    labels = np.concatenate(y)
    weight = np.where(labels < 5, 1.0, 3.0 / 3)
    gram = phi.T @ (weight[:, None] * phi) + head.config["ridge"] * np.eye(phi.shape[1])
    solved = np.linalg.solve(gram, phi.T @ (weight[:, None] * np.eye(8)[labels]))
    expected = gaussian_features(head.metric(X), head._centres, head.sigma) @ solved
    assert np.abs(head.logits(X) - expected).max() < 1e-8
    again = type(head).from_state(head.state())
    again.add(X[Y == 8], Y[Y == 8])
    head.add(X[Y == 8], Y[Y == 8])
    assert np.array_equal(again.logits(X), head.logits(X))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("centres", 0),
        ("centres", 2.5),
        ("copies", -1),
        ("sigma", -1),
        ("ridge", 0),
        ("ridge", "auto"),
        ("repeat", float("nan")),
    ],
)
def test_bad_options_are_named(name, value):
    with refused(repr(value), field=name):
        make_head("gkeal", **{name: value})


# The kernel.


def test_kernel_features_by_hand():
    rows = np.array([[0.0, 0.0], [3.0, 4.0]])
    centres = np.array([[0.0, 0.0], [0.0, 4.0], [3.0, 4.0]])
    expected = [
        [1.0, math.exp(-16 / 8), math.exp(-25 / 8)],
        [math.exp(-25 / 8), math.exp(-9 / 8), 1.0],
    ]
    found = gaussian_features(rows, centres, sigma=2.0)
    np.testing.assert_allclose(found, expected)


def test_centres_come_from_all_rows_without_repeats():
    drawn = draw_centres(10_000, 500, np.random.default_rng(0))
    assert len(np.unique(drawn)) == 500
    assert drawn.max() > 9_900
    assert abs(drawn.mean() - 5_000) < 500
    assert np.array_equal(drawn, draw_centres(10_000, 500, np.random.default_rng(0)))
    assert sorted(draw_centres(3, 500, np.random.default_rng(0)).tolist()) == [0, 1, 2]


def test_the_median_distance():
    line = np.array([[0.0], [1.0], [3.0]])  # distances 1, 2 and 3
    assert median_distance(line, np.random.default_rng(0)) == pytest.approx(2.0)
    assert median_distance(np.ones((4, 2)), np.random.default_rng(0)) == 1.0
    assert median_distance(np.ones((1, 2)), np.random.default_rng(0)) == 1.0


# Recursive least squares.

RIDGE, SIZE = 0.3, 12
RNG = np.random.default_rng(0)
PHI = RNG.uniform(size=(90, SIZE))
COLUMNS = np.array([*RNG.permutation(np.repeat(range(4), 15)), *np.repeat([4, 5, 6], 10)])
WEIGHT = np.where(COLUMNS < 4, 1.0, 7.0)


def batch(phi, columns, weight, n_classes=7):
    """The ridge solution (k, C) of weighted rows, by the normal equations."""
    x, w = phi, weight[:, None]
    y = np.eye(n_classes)[columns]
    return np.linalg.solve(x.T @ (w * x) + RIDGE * np.eye(x.shape[1]), x.T @ (w * y))


def recursive(sessions):
    first = slice(0, 60)
    solved = RidgeClassifier.solve([(PHI[first], COLUMNS[first])], 4, SIZE, RIDGE)
    for rows in sessions:
        psi = solved.coordinates(PHI[rows])
        solved = solved.extended(psi, COLUMNS[rows], WEIGHT[rows])
    return solved


@pytest.mark.parametrize("size", [1, 4, 30])
def test_ridge_sessions_one_by_one_equal_solving_once_with_everything(size):
    solved = recursive([slice(i, min(i + size, 90)) for i in range(60, 90, size)])
    assert len(solved.seen) <= 2 * SIZE
    found = solved.scores(solved.coordinates(PHI))
    assert np.abs(found - PHI @ batch(PHI, COLUMNS, WEIGHT)).max() < 1e-8


def test_the_base_alone_is_a_batch_solve():
    solved = recursive([])
    expected = PHI @ batch(PHI[:60], COLUMNS[:60], WEIGHT[:60], 4)
    assert np.abs(solved.scores(solved.coordinates(PHI)) - expected).max() < 1e-8


def test_a_weight_is_a_repetition():
    rows = slice(60, 70)
    weighted = recursive([rows])
    repeated = recursive([])
    psi = np.tile(repeated.coordinates(PHI[rows]), (7, 1))
    repeated = repeated.extended(psi, np.tile(COLUMNS[rows], 7), np.ones(70))
    np.testing.assert_allclose(weighted.weights, repeated.weights, rtol=0, atol=1e-10)


def test_ridge_leave_one_out_equals_leaving_out():
    solved = recursive([slice(60, 75), slice(75, 90)])
    psi = solved.coordinates(PHI)
    own = COLUMNS.copy()
    own[3] = -1
    found = solved.leave_one_out(solved.scores(psi), psi, own, WEIGHT)
    for row in (0, 17, 59, 60, 71, 89):
        rest = np.arange(90) != row
        expected = PHI[row] @ batch(PHI[rest], COLUMNS[rest], WEIGHT[rest])
        assert np.abs(found[row] - expected).max() < 1e-8
    assert np.array_equal(found[3], solved.scores(psi)[3])


def test_a_forgotten_column_leaves_the_others_and_its_rows_count_for_none():
    solved = recursive([slice(60, 90)]).without(5)
    found = solved.scores(solved.coordinates(PHI))
    expected = np.delete(PHI @ batch(PHI, COLUMNS, WEIGHT), 5, axis=1)
    assert np.abs(found - expected).max() < 1e-8


def test_an_older_copy_is_not_touched():
    solved = recursive([slice(60, 70)])
    weights, seen = solved.weights.copy(), solved.seen.copy()
    for rows in (slice(70, 80), slice(80, 90)):
        solved.extended(solved.coordinates(PHI[rows]), COLUMNS[rows], WEIGHT[rows])
    assert np.array_equal(solved.weights, weights)
    assert np.array_equal(solved.seen, seen)
