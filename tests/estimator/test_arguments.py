"""What is passed besides X and y: used as it says, or refused by name."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from cala import CalaClassifier
from cala.core.fakes import FakePool
from cala.errors import BaseQueryWarning, FallbackWarning, InputError
from cala.estimator.arguments import holdout_mask, seed_of
from cala.heads import BaseData, make_head
from problems import blobs

N_BASE, DIM = 8, 6
X, Y = blobs(N_BASE + 2, 12, DIM, spread=1.2)
BASE = N_BASE > Y
ROWS = int(BASE.sum())
FAKE = np.random.default_rng(0).normal(size=(20, 10, DIM))
PAIRS = np.array([(i, j) for i in range(N_BASE) for j in range(i)][:20])


def fit(method="la", *, fake=None, pairs=None, holdout="all", dtype=float, **options):
    model = CalaClassifier(method, **options)
    return model.fit(X[BASE].astype(dtype), Y[BASE], fake=fake, pairs=pairs, holdout=holdout)


def alpha(model):
    return float(model._head.adapter.parameters[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": ["cala"]}, "unknown method \\['cala'\\]"),
        ({"method": {"cala"}}, "unknown method \\{'cala'\\}"),
        ({"method": None}, "unknown method None"),
        ({"metric": ["cosine"]}, "unknown metric \\['cosine'\\]"),
        ({"metric": ""}, "unknown metric ''"),
        ({"metric": np.array(["cosine", "whitened"])}, "unknown metric array"),
        ({"preset": ["paper"]}, "unknown preset \\['paper'\\]"),
        ({"objective": ["harmonic"]}, "unknown objective \\['harmonic'\\]"),
        ({"scale": np.array([1.0, 2.0])}, "scale is array"),
        ({"scale": np.nan}, "scale is nan"),
        ({"scale": [16]}, "scale is \\[16\\]"),
        ({"random_state": 2**64}, "random_state is 18446744073709551616: give a whole number"),
        ({"random_state": -1}, "random_state is -1: give a whole number from 0"),
        ({"random_state": "x"}, "random_state is 'x'"),
        ({"max_base_loss": True}, "max_base_loss is True"),
        ({"max_base_loss": np.nan}, "max_base_loss is nan"),
        (
            {"max_base_loss": 0.1, "objective": "harmonic"},
            "objective='harmonic' and max_base_loss=0.1 are two operating points",
        ),
        ({"method": "nearest-mean", "max_base_loss": 0.1}, "nearest-mean.* no operating point"),
        ({"method": "nearest-mean", "objective": "harmonic"}, "nearest-mean.* no operating"),
    ],
)
def test_unusable_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        fit(**options)


@pytest.mark.parametrize("scale", [np.int64(16), np.float32(16), 16])
def test_numbers_of_any_make_are_numbers(scale):
    model = fit(scale=scale)
    assert model._head.host.scale == 16.0
    assert fit(max_base_loss=np.float32(0.125)).delta_ == fit(max_base_loss=0.125).delta_
    assert (
        make_head("nearest-mean", shrinkage=np.float32(2), metric="whitened").config["shrinkage"]
        == 2.0
    )


def test_the_largest_seeds_are_seeds():
    for seed in (0, 2**32, 2**64 - 1, np.int64(3)):
        assert seed_of(seed) == seed
        np.random.default_rng(seed_of(seed))


def test_a_loss_of_base_that_fit_allows_sets_the_operating_point():
    model, moved = fit(max_base_loss=0.05), fit()
    assert moved.delta_ == 0.0
    moved.set_operating_point(max_base_loss=0.05)
    assert model.delta_ == moved.delta_ != 0.0
    curve = model._head.curve
    index = np.searchsorted(curve.delta, model.delta_, side="right") - 1
    assert curve.base[index] >= curve.base[0] - 0.05 - 1e-9
    assert fit(max_base_loss=0.3).delta_ > model.delta_


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"objective": "bogus", "delta": 1}, "unknown objective 'bogus'"),
        ({"delta": 1, "max_base_loss": 0.1}, "max_base_loss=0.1 and delta=1 are two operating"),
        ({"objective": "harmonic", "delta": 1}, "objective='harmonic' and delta=1 are two"),
        ({"objective": "harmonic", "max_base_loss": 0}, "and max_base_loss=0 are two"),
        ({"delta": True}, "delta is True"),
    ],
)
def test_contradicting_operating_points_are_named(arguments, message):
    model = fit().set_operating_point(delta=-1.0)
    with pytest.raises(InputError, match=message):
        model.set_operating_point(**arguments)
    assert model.delta_ == -1.0


def test_given_fakes_and_pairs_reach_the_adapter():
    """The same α as that of a head which is given the same pool."""
    everything = np.ones(ROWS, dtype=bool)
    apart = np.arange(40).reshape(20, 2)
    for pairs, own in ((PAIRS, PAIRS), (None, apart)):
        data = BaseData(X[BASE], Y[BASE], fakes=FakePool(FAKE, own), holdout=everything)
        head = make_head("la").fit_base(data)
        found = alpha(fit(fake=FAKE, pairs=pairs))
        assert found == float(head.adapter.parameters[0])
        assert found != alpha(fit())
    assert alpha(fit(fake=FAKE, pairs=PAIRS.astype(float))) == alpha(fit(fake=FAKE, pairs=PAIRS))


@pytest.mark.parametrize("method", ["la", "cala", "cala-plus"])
def test_scattered_fakes_ask_for_more_help_than_tight_ones(method):
    """A scattered class has a poor prototype from few shots, and its images fall to base."""
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(20, 1, DIM))
    help_given = []
    for spread in (0.1, 1.5):
        fake = centres + spread * rng.normal(size=(20, 25, DIM))
        model = fit(method, fake=fake, scale=16.0, metric="cosine")
        model.partial_fit(X[Y == N_BASE][:5], Y[Y == N_BASE][:5])
        # Inputs of cala-plus are standardised on the fakes: its offset is their mean β.
        plus = method == "cala-plus"
        help_given.append(float(model._head.adapter.parameters[-1]) if plus else model.beta_[-1])
    assert help_given[0] < help_given[1]


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_only_directions_of_fakes_count(size):
    plain, large = (fit(fake=f, dtype=np.float32) for f in (FAKE, FAKE * size))
    assert alpha(large) == pytest.approx(alpha(plain), rel=1e-3)
    model = fit(dtype=np.float32)
    np.testing.assert_allclose(
        model.predict_proba(X * size), model.predict_proba(X), rtol=1e-3, atol=1e-6
    )


@pytest.mark.parametrize(
    ("fake", "pairs", "message"),
    [
        (None, PAIRS, "without fake"),
        (FAKE, PAIRS + 0.5, "pairs is float64"),
        (FAKE, np.where(PAIRS == 0, np.nan, PAIRS), "pairs is float64"),
        (FAKE, PAIRS.astype(str), "pairs is <U"),
        (FAKE, PAIRS[:3], r"pairs is int64 of shape \(3, 2\)"),
        (FAKE, np.zeros_like(PAIRS), "pairs names one class twice"),
        (FAKE, [[1, 2], [3]], "pairs is not an array"),
        (5.0, None, r"fake has shape \(\)"),
        (FAKE.astype(str), None, "type <U"),
        (np.full_like(FAKE, np.nan), None, "fake classes contain NaN"),
        ([[1.0], [2.0, 3.0]], None, "fake is not an array"),
    ],
)
def test_unusable_fakes_are_named(fake, pairs, message):
    with pytest.raises(InputError, match=message):
        fit(fake=fake, pairs=pairs)


@pytest.mark.parametrize(
    ("holdout", "message"),
    [
        (np.array(["yes"] * ROWS), "holdout is <U3 of shape"),
        (np.array(["yes", None] * (ROWS // 2), dtype=object), "holdout is object of shape"),
        (np.ones(ROWS), "holdout is float64 of shape"),
        ([[True], [True, False]], "holdout is not an array"),
        ("some", "unknown holdout 'some'"),
    ],
)
def test_unusable_hold_outs_are_named(holdout, message):
    with pytest.raises(InputError, match=message):
        fit(holdout=holdout)


def test_a_hold_out_of_pandas_is_a_hold_out():
    mask = np.arange(ROWS) % 2 == 0
    for given in (pd.Series(mask), pd.Series(mask, dtype="boolean"), mask.astype(object)):
        assert holdout_mask(given, ROWS).tolist() == mask.tolist()


def test_a_hold_out_of_few_classes_says_how_many_and_is_completed():
    few = (Y[BASE] < 2) & (np.arange(ROWS) % 2 == 0)
    with pytest.warns(BaseQueryWarning, match="the hold-out covers 2 of 8 base classes"):
        partly = fit(holdout=few, scale=16.0)
    whole = fit(scale=16.0)
    assert alpha(partly) == pytest.approx(alpha(whole), abs=0.5)


def test_more_shots_than_images_are_said():
    with pytest.warns(FallbackWarning, match="have 12 images.* have 11 shots instead of 1000"):
        model = fit(shots=1000)
    assert model._head.trained_as.shots == (11,)
    with pytest.warns(FallbackWarning, match="have 1, 5, 11 shots instead of 1, 5, 30"):
        fit(shots=(1, 5, 30))
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        fit(shots=(1, 5, 11))


def test_the_seed_reaches_every_adapter():
    for method in ("la", "cala-plus"):
        fitted = [fit(method, random_state=seed)._head.adapter for seed in (0, 1, 1)]
        weights = [adapter.parameters for adapter in fitted]
        assert np.array_equal(weights[1], weights[2])
        assert not np.array_equal(weights[0], weights[1])
