"""What is passed besides X and y: used as it says, or refused by name."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from cala import CalaClassifier
from cala.core.fakes import FakePool
from cala.errors import FallbackWarning
from cala.estimator.arguments import holdout_mask, seed_of
from cala.heads import BaseData, make_head
from problems import blobs
from refusals import refused, warned

N_BASE, DIM = 8, 6
X, Y = blobs(N_BASE + 2, 12, DIM, spread=1.2)
BASE = N_BASE > Y
TWO = "two_operating_points"
ROWS = int(BASE.sum())
FAKE = np.random.default_rng(0).normal(size=(20, 10, DIM))
PAIRS = np.array([(i, j) for i in range(N_BASE) for j in range(i)][:20])


def fit(method="la", *, fake=None, pairs=None, holdout="all", dtype=float, **options):
    model = CalaClassifier(method, **options)
    return model.fit(X[BASE].astype(dtype), Y[BASE], fake=fake, pairs=pairs, holdout=holdout)


def alpha(model):
    return float(model._head.adapter.parameters[0])


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("method", ["cala"], "unknown_name"),
        ("method", {"cala"}, "unknown_name"),
        ("method", None, "unknown_name"),
        ("metric", ["cosine"], "unknown_name"),
        ("metric", "", "unknown_name"),
        ("metric", np.array(["cosine", "whitened"]), "unknown_name"),
        ("preset", ["paper"], "unknown_name"),
        ("objective", ["harmonic"], "unknown_name"),
        ("scale", np.array([1.0, 2.0]), "bad_value"),
        ("scale", np.nan, "bad_value"),
        ("scale", [16], "bad_value"),
        ("random_state", 2**64, "bad_value"),
        ("random_state", -1, "bad_value"),
        ("random_state", "x", "bad_value"),
        ("max_base_loss", True, "bad_value"),
        ("max_base_loss", np.nan, "bad_value"),
    ],
)
def test_unusable_options_are_named(name, value, code):
    with refused(repr(value), field=name, code=code):
        fit(**{name: value})


@pytest.mark.parametrize("options", [{"max_base_loss": 0.1}, {"objective": "harmonic"}])
def test_no_operating_point_without_an_adapter(options):
    with refused("nearest-mean", field="method", code="no_adapter"):
        fit("nearest-mean", **options)


def test_two_operating_points_at_once():
    with refused("objective='harmonic'", "max_base_loss=0.1", code=TWO):
        fit(max_base_loss=0.1, objective="harmonic")


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
    ("arguments", "code", "named"),
    [
        ({"objective": "bogus", "delta": 1}, "unknown_name", ["'bogus'"]),
        ({"delta": 1, "max_base_loss": 0.1}, TWO, ["max_base_loss=0.1", "delta=1"]),
        ({"objective": "harmonic", "delta": 1}, TWO, ["objective='harmonic'", "delta=1"]),
        ({"objective": "harmonic", "max_base_loss": 0}, TWO, ["'harmonic'", "max_base_loss=0"]),
        ({"delta": True}, "bad_value", ["delta", "True"]),
    ],
)
def test_contradicting_operating_points_are_named(arguments, code, named):
    model = fit().set_operating_point(delta=-1.0)
    with refused(*named, code=code):
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
    ("fake", "pairs", "code", "named"),
    [
        (None, PAIRS, "no_fakes", ""),
        (FAKE, PAIRS + 0.5, "bad_value", "float64"),
        (FAKE, np.where(PAIRS == 0, np.nan, PAIRS), "bad_value", "float64"),
        (FAKE, PAIRS.astype(str), "bad_value", "<U"),
        (FAKE, PAIRS[:3], "bad_value", "(3, 2)"),
        (FAKE, np.zeros_like(PAIRS), "same_parents", "rows 0, 1"),
        (FAKE, [[1, 2], [3]], "not_an_array", ""),
        (5.0, None, "bad_value", "()"),
        (FAKE.astype(str), None, "not_numbers", "<U"),
        (np.full_like(FAKE, np.nan), None, "not_finite", "rows 0, 1"),
        ([[1.0], [2.0, 3.0]], None, "not_an_array", ""),
    ],
)
def test_unusable_fakes_are_named(fake, pairs, code, named):
    with refused(named, field="fake" if pairs is None else "pairs", code=code):
        fit(fake=fake, pairs=pairs)


@pytest.mark.parametrize(
    ("holdout", "code", "named"),
    [
        (np.array(["yes"] * ROWS), "bad_value", "<U3"),
        (np.array(["yes", None] * (ROWS // 2), dtype=object), "bad_value", "object"),
        (np.ones(ROWS), "bad_value", "float64"),
        ([[True], [True, False]], "not_an_array", ""),
        ("some", "unknown_name", "'some'"),
    ],
)
def test_unusable_hold_outs_are_named(holdout, code, named):
    with refused(named, field="holdout", code=code):
        fit(holdout=holdout)


def test_a_hold_out_of_pandas_is_a_hold_out():
    mask = np.arange(ROWS) % 2 == 0
    for given in (pd.Series(mask), pd.Series(mask, dtype="boolean"), mask.astype(object)):
        assert holdout_mask(given, ROWS).tolist() == mask.tolist()


def test_a_hold_out_of_few_classes_says_how_many_and_is_completed():
    few = (Y[BASE] < 2) & (np.arange(ROWS) % 2 == 0)
    with warned("partial_holdout", "2 of 8"):
        partly = fit(holdout=few, scale=16.0)
    whole = fit(scale=16.0)
    assert alpha(partly) == pytest.approx(alpha(whole), abs=0.5)


def test_more_shots_than_images_are_said():
    with warned("fewer_shots", 12, 11, 1000):
        model = fit(shots=1000)
    assert model._head.trained_as.shots == (11,)
    with warned("fewer_shots", "1, 5, 11", "1, 5, 30"):
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
