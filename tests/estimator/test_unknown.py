"""`familiarity` and `is_unknown` of the estimator."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from cala import CalaClassifier
from cala.errors import InputError
from problems import blobs

pytestmark = pytest.mark.filterwarnings("ignore::cala.errors.FallbackWarning")

X, Y = blobs(14, 40, 16)
LEARN = (Y < 10) & (np.arange(len(Y)) % 40 < 20)


@pytest.fixture(scope="module")
def model():
    return CalaClassifier("la").fit(X[LEARN], Y[LEARN], holdout="all")


def shots(model, label, k):
    rows = np.flatnonzero(label == Y)[:k]
    return model.partial_fit(X[rows], Y[rows])


def test_a_class_that_is_learned_is_no_longer_unknown(model):
    model = pickle.loads(pickle.dumps(model))
    own = X[Y == 12][20:]
    before = model.familiarity(own)
    after = shots(model, 12, 5).familiarity(own)
    assert (after >= before).all()
    assert model.is_unknown(own).mean() < (before < 0.05).mean()
    back = model.forget(12).familiarity(own)
    np.testing.assert_array_equal(back, before)


def test_is_unknown_is_a_threshold_on_familiarity(model):
    p = model.familiarity(X)
    assert p.shape == (len(X),)
    assert p.dtype == np.float64
    np.testing.assert_array_equal(model.is_unknown(X, 0.2), p < 0.2)
    np.testing.assert_array_equal(model.is_unknown(X), p < 0.05)


def test_the_operating_point_does_not_matter(model):
    moved = shots(pickle.loads(pickle.dumps(model)), 11, 3)
    before = moved.familiarity(X)
    np.testing.assert_array_equal(moved.set_operating_point(delta=5.0).familiarity(X), before)


def test_rows_are_judged_one_by_one(model):
    whole = model.familiarity(X[:50])
    np.testing.assert_array_equal(whole[::-1], model.familiarity(X[:50][::-1]))


@pytest.mark.parametrize("rate", [0, 1, -0.1, 2, "0.05", None, True, float("nan")])
def test_a_bad_rate_is_named(model, rate):
    with pytest.raises(InputError) as error:
        model.is_unknown(X, rate)
    assert error.value.field == "rate"


def test_one_photo_per_class_is_never_unknown():
    model = CalaClassifier("nearest-mean").fit(X[LEARN][::20], Y[LEARN][::20])
    assert (model.familiarity(X) == 1).all()
    assert not model.is_unknown(X).any()
