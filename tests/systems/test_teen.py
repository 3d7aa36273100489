"""TEEN's prototypes, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cala.heads import make_head
from cala.heads.base_data import BaseData
from problems import blobs
from refusals import refused

X, Y = blobs(6, 8, 5)
BASE = Y < 4


def fitted(**options):
    return make_head("teen", **options).fit_base(BaseData(X[BASE], Y[BASE]))


def test_a_prototype_by_hand():
    """Base along the two axes, one shot at (0.6, 0.8), τ = 5, α = 0.25."""
    x = np.array([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    head = make_head("teen", alpha=0.25, tau=5.0, scale=10.0)
    head.fit_base(BaseData(x, np.array([0, 0, 1, 1])))
    head.add(np.array([[3.0, 4.0]]), np.array([2]))
    w0 = math.exp(5 * 0.6) / (math.exp(5 * 0.6) + math.exp(5 * 0.8))
    length = math.hypot(w0, 1 - w0)
    p = [0.75 * 0.6 + 0.25 * w0 / length, 0.75 * 0.8 + 0.25 * (1 - w0) / length]
    np.testing.assert_allclose(head.prototypes[2], p)
    np.testing.assert_allclose(head.prototypes[:2], np.eye(2))
    cosine = (p[0] + p[1]) / math.sqrt(2) / math.hypot(*p)
    assert float(head.logits(np.ones((1, 2)))[0, 2]) == pytest.approx(10 * cosine)


@pytest.mark.parametrize("metric", ["cosine", "whitened"])
def test_without_leaning_it_is_nearest_mean(metric):
    plain = make_head("nearest-mean", metric=metric).fit_base(BaseData(X[BASE], Y[BASE]))
    head = fitted(metric=metric, alpha=0.0)
    for one in (plain, head):
        one.add(X[~BASE], Y[~BASE])
    np.testing.assert_allclose(head.logits(X), plain.logits(X))


@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_later_base_shots_and_forgotten_base_classes_do_not_change_new_prototypes(alpha):
    expected = fitted(alpha=alpha).add(X[Y == 4], Y[Y == 4]).prototypes[-1]
    head = fitted(alpha=alpha).add(-X[Y == 0], Y[Y == 0]).forget(1).add(X[Y == 4], Y[Y == 4])
    np.testing.assert_allclose(head.prototypes[-1], expected)


@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_shots_are_left_out_of_their_calibrated_prototype(alpha):
    head = fitted(alpha=alpha).add(X[Y == 4], Y[Y == 4])
    rows = X[Y == 4]
    found = head.unit_logits(head.embed(rows), np.full(8, 4))
    for row in range(8):
        rest = np.arange(8) != row
        without = fitted(alpha=alpha).add(rows[rest], np.full(7, 4))
        np.testing.assert_allclose(found[row], without.logits(rows[row : row + 1])[0])


@pytest.mark.parametrize(
    ("name", "value"),
    [("alpha", 1.5), ("tau", -1)],
)
def test_bad_options_are_named(name, value):
    with refused(repr(value), field=name):
        make_head("teen", **{name: value})
