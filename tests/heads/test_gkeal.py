"""GKEAL: one solution whatever the sessions, fair to its own rows, cheap to fork."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cala.core.kernel import gaussian_features
from cala.errors import InputError
from cala.heads import make_head
from problems import blobs

X, Y = blobs(9, 20, 6)
BASE = Y < 5


def fitted(x=X[BASE], y=Y[BASE], **options):
    options = {"centres": 30, "sigma": 0.8, "repeat": 3.0, "scale": 1.0, **options}
    return make_head("gkeal", **options).fit_base(x, y)


def once(head, x, y, n_classes, skip=None):
    """Scores by the normal equations of all rows at once, from the head's own centres."""
    phi = gaussian_features(head.metric(x), head._centres, head.sigma).numpy()
    weight = np.where(y.numpy() < 5, 1.0, 3.0)
    if skip is not None:
        weight[skip] = 0
    target = np.eye(n_classes)[y.numpy()]
    gram = phi.T @ (weight[:, None] * phi) + head.ridge * np.eye(phi.shape[1])
    return phi @ np.linalg.solve(gram, phi.T @ (weight[:, None] * target))


@pytest.mark.parametrize("metric", ["cosine", "whitened"])
def test_sessions_one_by_one_equal_solving_once_with_everything(metric):
    head = fitted(metric=metric)
    for rows in (Y == 5, (Y == 6) | (Y == 7), Y == 8):
        head.add(X[rows], Y[rows])
    assert np.abs(head.logits(X).numpy() - once(head, X, Y, 9)).max() < 1e-8


def test_leave_one_out_equals_leaving_out():
    head = fitted().add(X[~BASE], Y[~BASE])
    found = head.unit_logits(head.embed(X), Y).numpy()
    for row in (0, 50, 99, 100, 179):
        assert np.abs(found[row] - once(head, X, Y, 9, skip=row)[row]).max() < 1e-8


def test_more_shots_than_centres_keep_the_solution():
    rng = np.random.default_rng(1)
    more = torch.tensor(rng.normal(size=(200, 6)))
    labels = torch.tensor(rng.integers(5, 9, size=200))
    head = fitted()
    for part in range(0, 200, 25):
        head.add(more[part : part + 25], labels[part : part + 25])
    order = [*range(5), *(c for c in head.classes if c >= 5)]
    x, y = torch.cat([X[BASE], more]), torch.cat([Y[BASE], labels])
    expected = once(head, x, y, 9)[:, order]
    assert np.abs(head.logits(x).numpy() - expected).max() < 1e-8


def test_centres_come_from_every_class_though_rows_are_sorted_by_class():
    head = fitted(X, Y)
    rows = torch.cdist(head._centres, head.embed(X)[:, :6]).argmin(1)
    assert set(Y[rows].tolist()) == set(range(9))
    assert not torch.equal(head._centres, fitted(X, Y, seed=1)._centres)


def test_auto_lets_five_shots_weigh_as_much_as_a_base_class():
    assert fitted(repeat="auto").repeat == 20 / 5
    assert fitted(X[::5], Y[::5], repeat="auto").repeat == 1.0


def test_the_scale_makes_probabilities_of_scores():
    """Cross-entropy of rows that it has not seen is near its best, within a factor of two."""
    half = torch.arange(len(Y)) % 2 == 0
    head = fitted(X[half], Y[half], scale="auto")
    scores, y = head.logits(X[~half]) / head.scale, Y[~half]
    loss = [
        float(torch.nn.functional.cross_entropy(scores * head.scale * f, y)) for f in (0.4, 1, 2.5)
    ]
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
            x.append(vectors / vectors.norm(dim=1, keepdim=True))
            y.append(Y[rows])
    phi = gaussian_features(torch.cat(x), head._centres, head.sigma).numpy()
    labels = torch.cat(y).numpy()
    weight = np.where(labels < 5, 1.0, 3.0 / 3)
    gram = phi.T @ (weight[:, None] * phi) + head.ridge * np.eye(phi.shape[1])
    solved = np.linalg.solve(gram, phi.T @ (weight[:, None] * np.eye(8)[labels]))
    expected = gaussian_features(head.metric(X), head._centres, head.sigma).numpy() @ solved
    assert np.abs(head.logits(X).numpy() - expected).max() < 1e-8
    again = type(head).from_state(head.state())
    again.add(X[Y == 8], Y[Y == 8])
    head.add(X[Y == 8], Y[Y == 8])
    assert torch.equal(again.logits(X), head.logits(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"centres": 0}, "centres is 0: give a whole number from 1 on"),
        ({"centres": 2.5}, "centres is 2.5"),
        ({"copies": -1}, "copies is -1: give a whole number from 0 on"),
        ({"sigma": -1}, "sigma is -1: give a positive number"),
        ({"ridge": 0}, "ridge is 0: give a positive number"),
        ({"ridge": "auto"}, "ridge is 'auto': give a positive number"),
        ({"repeat": float("nan")}, "repeat is nan"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        make_head("gkeal", **options)
