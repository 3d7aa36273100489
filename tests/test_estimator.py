"""CalaClassifier: scikit-learn's contract, growing classes, and bad input."""

from __future__ import annotations

import copy
import json
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import cala
from cala import CalaClassifier
from cala.errors import BaseQueryWarning, FallbackWarning
from cala.heads import ADAPTERS, HEADS, BaseData, make_head
from refusals import refused

X, Y = load_digits(return_X_y=True)
BASE = Y < 6
OTHERS = ("bidist-base", "savc")  # as nearest mean here
HOSTS = [
    name
    for name in HEADS
    if not (HEADS[name].traits.needs_parts or HEADS[name].traits.changes_encoder or name in OTHERS)
]
ALL_METHODS = [
    *HOSTS,
    *ADAPTERS,
    *(f"{host}+{list(ADAPTERS)[i % 3]}" for i, host in enumerate(HOSTS)),
]
NAMES = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])


@pytest.fixture(scope="module")
def fitted_once():
    return CalaClassifier().fit(X[BASE], Y[BASE], holdout="all")


@pytest.fixture
def model(fitted_once):
    return pickle.loads(pickle.dumps(fitted_once))


def shots(label, k=5):
    rows = np.flatnonzero(label == Y)[:k]
    return X[rows], Y[rows]


# Checks of scikit-learn that contradict what this classifier promises.
CONTRADICTIONS = {
    "check_estimators_partial_fit_n_features": "partial_fit needs fit first: it adds to a base",
    "check_n_features_in_after_fitting": "calls partial_fit without fit: it adds to a base",
    "check_estimators_dtypes": "feeds an all-zero row, which has no direction and is refused",
}


quietly = pytest.mark.filterwarnings(
    "ignore::cala.errors.FallbackWarning", "ignore::cala.errors.BaseQueryWarning"
)


@quietly
@parametrize_with_checks([CalaClassifier()], expected_failed_checks=lambda _: CONTRADICTIONS)
def test_scikit_learns_contract(estimator, check):
    check(estimator)


@quietly
@pytest.mark.long
@parametrize_with_checks(
    [CalaClassifier(preset="paper"), CalaClassifier("nearest-mean")],
    expected_failed_checks=lambda _: CONTRADICTIONS,
)
def test_scikit_learns_contract_whatever_the_method(estimator, check):
    check(estimator)


def test_it_learns_new_classes_from_five_examples(model):
    for label in (6, 7, 8, 9):
        model.partial_fit(*shots(label))
    assert model.classes_.tolist() == list(range(10))
    rest = np.concatenate([np.flatnonzero(c == Y)[5:] for c in range(6, 10)])
    plain = CalaClassifier("nearest-mean").fit(X[BASE], Y[BASE])
    for label in (6, 7, 8, 9):
        plain.partial_fit(*shots(label))
    assert model.score(X[rest], Y[rest]) > 0.7
    assert model.score(X[rest], Y[rest]) > plain.score(X[rest], Y[rest])


def test_attributes():
    model = CalaClassifier("cala-plus").fit(X[BASE], Y[BASE], holdout="all")
    assert model.report_ == {}
    model.partial_fit(*shots(8, 3)).partial_fit(*shots(7, 1))
    assert model.classes_.tolist() == [0, 1, 2, 3, 4, 5, 8, 7]
    assert model.n_base_ == 6
    assert model.n_shots_.tolist() == [*np.bincount(Y[BASE]), 3, 1]
    assert model.prototypes_.shape[0] == 8
    assert model.beta_.shape == (8,)
    assert (model.beta_[:6] == 0).all()
    assert (model.beta_[6:] != 0).all()
    assert model.delta_ == 0.0
    np.testing.assert_array_equal(model.shift_, model.head_.gamma * model.beta_)
    assert (CalaClassifier("nearest-mean").fit(X[BASE], Y[BASE]).shift_ == np.zeros(6)).all()
    paper = CalaClassifier(preset="paper").fit(X[BASE], Y[BASE], holdout="all")
    assert paper.prototypes_.shape == (6, 64)


def test_attributes_before_fit():
    for name in ("prototypes_", "beta_", "n_shots_", "n_base_", "delta_", "shift_"):
        assert not hasattr(CalaClassifier(), name)


def test_names_may_be_strings_of_any_length():
    model = CalaClassifier("la").fit(X[BASE], NAMES[Y[BASE]], holdout="all")
    assert model.classes_.tolist() == sorted(NAMES[:6])
    model.partial_fit(shots(7)[0], ["a much longer name, with ünïcode 🐦"] * 5)
    assert model.classes_[-1] == "a much longer name, with ünïcode 🐦"
    assert model.predict(shots(7)[0])[0] in model.classes_
    model.partial_fit(shots(6)[0], np.array(["six"] * 5, dtype=object))
    assert model.classes_.tolist()[-1] == "six"


def test_known_classes_are_folded_in(model):
    model.partial_fit(*shots(6, 5))
    x = X[Y == 6]
    model.partial_fit(x[5:], np.full(len(x) - 5, 6))
    assert model.n_shots_[-1] == len(x)
    once = CalaClassifier().fit(X[BASE], Y[BASE], holdout="all").partial_fit(x, np.full(len(x), 6))
    np.testing.assert_allclose(model.prototypes_, once.prototypes_)
    np.testing.assert_allclose(model.beta_, once.beta_)


def test_preset_paper_says_when_it_learned_less():
    few = Y < 3
    with pytest.warns(FallbackWarning):
        model = CalaClassifier(preset="paper").fit(X[few], Y[few], holdout="all")
    assert model.report_.keys() == {"fallback"}


@pytest.mark.parametrize("scale", ["auto", 16.0])
def test_preset_paper_is_the_text_but_for_its_loss(scale):
    model = CalaClassifier(preset="paper", method="la", metric="whitened", scale=scale)
    model.fit(X[BASE], Y[BASE], holdout="all")
    assert "Eq. 9" in model.report_["paper"]
    head = make_head("cala-literal", metric="cosine", scale=scale, adapter={"loss": "balanced"})
    head.fit_base(BaseData(X[BASE], Y[BASE], holdout=np.ones(int(BASE.sum()), dtype=bool)))
    x, y = shots(8)
    model.partial_fit(x, y)
    head.add(x, y)
    np.testing.assert_array_equal(model.decision_function(X), head.logits(X))


def test_probabilities_and_decisions_agree(model):
    model.partial_fit(*shots(9))
    p, z = model.predict_proba(X), model.decision_function(X)
    np.testing.assert_allclose(p.sum(1), 1)
    assert (p.argmax(1) == z.argmax(1)).all()
    assert (model.classes_[p.argmax(1)] == model.predict(X)).all()


def test_large_inputs_are_answered_in_parts(model, monkeypatch):
    whole = model.predict_proba(X)
    monkeypatch.setattr("cala.estimator.growing.PREDICT_ROWS", 100)
    np.testing.assert_allclose(model.predict_proba(X), whole, rtol=1e-9)


def test_forget_and_come_back(model):
    model.partial_fit(*shots(6)).partial_fit(*shots(7))
    before = model.decision_function(X)
    model.forget(6)
    assert model.classes_.tolist() == [0, 1, 2, 3, 4, 5, 7]
    np.testing.assert_allclose(model.decision_function(X), np.delete(before, 6, axis=1))
    model.partial_fit(*shots(6))
    assert model.classes_.tolist() == [0, 1, 2, 3, 4, 5, 7, 6]
    model.forget(0)
    assert model.n_base_ == 5
    with refused(77, code="unknown_class"):
        model.forget(77)
    with refused("[1]", code="unknown_class"):
        model.forget([1])


def test_a_shallow_copy_is_independent(model):
    before = model.predict_proba(X)
    copy.copy(model).partial_fit(*shots(7)).set_operating_point("harmonic").forget(0)
    np.testing.assert_array_equal(model.predict_proba(X), before)
    model.beta_[:] = 50
    model.n_shots_[:] = 0
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_ids_of_forgotten_classes_are_not_given_again(model):
    model.partial_fit(*shots(6)).partial_fit(*shots(7)).forget(6)
    model.partial_fit(*shots(8)).partial_fit(*shots(9))
    assert model.classes_.tolist() == [0, 1, 2, 3, 4, 5, 7, 8, 9]
    assert model.n_shots_[-3:].tolist() == [5, 5, 5]


def test_without_base_queries_the_operating_point_stays():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        model = CalaClassifier("la", max_base_loss=1).fit(X[:6], np.arange(6), holdout="all")
    assert model.delta_ == 0.0


def test_operating_points(model):
    for label in (6, 7, 8, 9):
        model.partial_fit(*shots(label))
    novel = Y >= 6
    scores = []
    for options in ({"max_base_loss": 0.0}, {"max_base_loss": 0.5}):
        model.set_operating_point(**options)
        scores.append(model.score(X[novel], Y[novel]))
    assert scores[0] <= scores[1]
    model.set_operating_point("harmonic")
    again = CalaClassifier(objective="harmonic").fit(X[BASE], Y[BASE], holdout="all")
    assert again.delta_ == model.delta_ != 0
    model.set_operating_point(delta=-2.0)
    assert model.delta_ == -2.0
    with refused("'a'", field="delta"):
        model.set_operating_point(delta="a")
    with refused(field="method", code="no_adapter"):
        CalaClassifier("nearest-mean").fit(X[BASE], Y[BASE]).set_operating_point("harmonic")


def test_the_same_seed_is_the_same_classifier_bit_for_bit():
    def run(seed):
        model = CalaClassifier("cala", random_state=seed).fit(X[BASE], Y[BASE], holdout="all")
        return model.partial_fit(*shots(7)).beta_

    np.testing.assert_array_equal(run(3), run(3))
    assert run(3)[-1] != run(4)[-1]
    generator = np.random.RandomState(0)
    assert run(generator)[-1] != run(generator)[-1]


def test_pipeline_clone_and_cross_validation():
    model = make_pipeline(StandardScaler(), CalaClassifier("la", random_state=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BaseQueryWarning)
        assert cross_val_score(model, X, Y, cv=3).mean() > 0.85
    again = clone(CalaClassifier("cala", shots=(1, 5), max_base_loss=0.1))
    assert again.get_params()["shots"] == (1, 5)


def test_memory_holds_no_training_embeddings(model):
    dim = X.shape[1]
    arrays = [v for v in vars(model).values() if isinstance(v, np.ndarray)]
    learned = model._head.state()["tensors"].values()
    largest = max(np.prod(a.shape) for a in [*arrays, *learned])
    assert largest <= (2 * dim) * (2 * dim)
    assert largest < X[BASE].size / 4


def test_a_missing_hold_out_warns_and_all_silences_it():
    with pytest.warns(BaseQueryWarning):
        CalaClassifier("la").fit(X[BASE], Y[BASE])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CalaClassifier("la").fit(X[BASE], Y[BASE], holdout="all")
        CalaClassifier("la").fit(X[BASE], Y[BASE], holdout=np.arange(BASE.sum()) % 2 == 0)


def test_expectations_reach_the_pseudo_sessions():
    model = CalaClassifier("la", expected_novel=3, shots=[1, 4]).fit(
        X[BASE], Y[BASE], holdout="all"
    )
    assert (model._head.recipe.novel, model._head.recipe.shots) == (3, (1, 4))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64, np.uint8])
def test_other_number_types(dtype):
    model = CalaClassifier("la").fit(X[BASE].astype(dtype), Y[BASE], holdout="all")
    assert model.predict_proba(X.astype(dtype)).dtype == np.float32
    assert model.score(X[BASE].astype(dtype), Y[BASE]) > 0.85


def test_two_classes_then_three():
    two = Y < 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        model = CalaClassifier().fit(X[two], Y[two], holdout="all")
    assert model.decision_function(X).shape == (len(X),)
    model.partial_fit(*shots(5, 1))
    assert model.decision_function(X).shape == (len(X), 3)


def sklearns(message):
    """An error of scikit-learn, which has no code."""
    return pytest.raises(ValueError, match=message)


def row_3(value):
    return lambda x: np.where(np.arange(len(x))[:, None] == 3, value, x)


BAD_FITS = [
    ({"X": lambda x: x[:5]}, sklearns("inconsistent numbers of samples")),
    ({"X": row_3(np.nan)}, sklearns("NaN")),
    ({"X": row_3(np.inf)}, sklearns("infinity")),
    ({"X": row_3(0.0)}, refused("row 3", field="X", code="all_zero")),
    ({"y": lambda y: np.zeros(len(y))}, refused("0.0", field="y", code="one_class")),
    ({"y": lambda y: [*map(str, y[:-1]), 3]}, refused(code="mixed_labels")),
    ({"y": lambda y: np.array([*y[:-1].tolist(), "a"], object)}, refused(code="mixed_labels")),
    ({"y": lambda y: y + 0.5}, sklearns("continuous")),
    ({"y": lambda y: y.astype("S")}, refused("bytes", field="y", code="label_type")),
    ({"fake": np.zeros((3, 4, 5))}, refused("(3, 4, 5)", field="fake")),
    ({"fake": np.full((3, 4, 64), np.nan)}, refused(field="fake", code="not_finite")),
    ({"fake": np.ones((12, 4, 64)), "pairs": [[0, 1]]}, refused("(1, 2)", field="pairs")),
    ({"holdout": "some"}, refused("'some'", field="holdout", code="unknown_name")),
    ({"holdout": [True]}, refused("(1,)", field="holdout")),
    ({"holdout": np.zeros(int(BASE.sum()), bool)}, refused("0 rows", field="holdout")),
]


@pytest.mark.parametrize(("change", "refusal"), BAD_FITS)
def test_a_bad_fit_is_named_and_leaves_the_classifier_as_it_was(model, change, refusal):
    before = model.predict_proba(X), json.dumps(model.classes_.tolist())
    arguments = {"X": X[BASE], "y": Y[BASE], "holdout": "all"}
    for name, value in change.items():
        arguments[name] = value(arguments[name]) if callable(value) else value
    with refusal:
        model.fit(**arguments)
    np.testing.assert_array_equal(model.predict_proba(X), before[0])
    assert json.dumps(model.classes_.tolist()) == before[1]


def test_a_failed_fit_of_another_dimension_changes_nothing(model):
    with refused(field="y", code="one_class"):
        model.fit(X[BASE][:, :10], np.zeros(BASE.sum()))
    assert model.n_features_in_ == 64
    assert model.predict(X[:3]).shape == (3,)


BAD_ADDS = [
    (lambda x, y: (x[:, :5], y), sklearns("5 features")),
    (lambda x, y: (x * np.nan, y), sklearns("NaN")),
    (lambda x, y: (x * 0, y), refused("rows 0, 1, 2, 3, 4", field="X", code="all_zero")),
    (lambda x, y: (x, y[:2]), sklearns("inconsistent numbers of samples")),
    (lambda x, y: (x[:0], y[:0]), sklearns("0 sample")),
    (lambda x, y: (x, ["seven"] * 5), refused(field="y", code="mixed_labels")),
    (lambda x, y: (x, [7, 7, 7, 7, None]), refused("row 4", None, field="y", code="no_label")),
]


@pytest.mark.parametrize(("change", "refusal"), BAD_ADDS)
def test_a_bad_partial_fit_is_named_and_leaves_the_classifier_as_it_was(model, change, refusal):
    model.partial_fit(*shots(6))
    before = model.predict_proba(X)
    with refusal:
        model.partial_fit(*change(*shots(7)))
    np.testing.assert_array_equal(model.predict_proba(X), before)
    assert model.classes_.tolist() == [0, 1, 2, 3, 4, 5, 6]
    model.partial_fit(*shots(7))
    assert model.classes_.tolist()[-1] == 7


@pytest.mark.parametrize(
    ("name", "value", "named", "hint"),
    [
        ("method", "calaa", "'calaa'", "'cala'?"),
        ("metric", "l2", "'l2'", "cosine, whitened"),
        ("preset", "papers", "'papers'", "'paper'?"),
        ("scale", 0, "0", "greater than 0"),
        ("objective", "hm", "'hm'", "harmonic"),
        ("max_base_loss", -1, "-1", "at least 0"),
        ("shots", 0, "0", "whole number"),
        ("shots", "5", "'5'", "whole number"),
        ("shots", [1, 2.5], "2.5", "whole number"),
        ("expected_novel", 0, "0", "whole number"),
        ("expected_novel", 1.5, "1.5", "whole number"),
        ("scale", "16", "'16'", "number"),
        ("scale", True, "True", "number"),
        ("max_base_loss", "a", "'a'", "number"),
    ],
)
def test_unknown_options_are_named(name, value, named, hint):
    with refused(named, field=name) as caught:
        CalaClassifier(**{name: value}).fit(X[BASE], Y[BASE], holdout="all")
    assert hint in caught.value.fix


@pytest.mark.parametrize("method", ALL_METHODS)
def test_every_method_works_here(method):
    model = CalaClassifier(method).fit(X[BASE][::4], Y[BASE][::4], holdout="all")
    assert model.partial_fit(*shots(7)).predict(X[Y == 7]).shape == (int((Y == 7).sum()),)


def test_partial_fit_without_fit_says_what_to_do():
    with pytest.raises(NotFittedError, match="call fit"):
        CalaClassifier().partial_fit(*shots(7))


def test_importing_and_fitting_does_not_import_torch():
    import subprocess
    import sys

    fit = "cala.CalaClassifier('la').fit(np.eye(4).repeat(3, 0), np.arange(4).repeat(3))"
    code = f"import sys, cala, numpy as np; {fit}; print(cala.__version__, 'torch' in sys.modules)"
    out = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    assert out.stdout.split() == [cala.__version__, "False"]
    with pytest.raises(AttributeError, match="no attribute 'Cala'"):
        _ = cala.Cala


def test_log_loss_takes_sorted_columns():
    from sklearn.metrics import log_loss

    x, y = load_digits(return_X_y=True)
    late = 3  # arrives last, so it is out of order
    known = y != late
    model = CalaClassifier("nearest-mean").fit(x[known], y[known])
    model.partial_fit(x[~known][:5], y[~known][:5])
    assert model.classes_[-1] == late
    own = np.take_along_axis(
        model.predict_proba(x), np.argmax(model.classes_ == y[:, None], 1)[:, None], 1
    )
    assert log_loss(y, model.sorted_proba(x)) == pytest.approx(float(-np.log(own).mean()), rel=1e-4)
    assert log_loss(y, model.predict_proba(x)) > 2 * log_loss(y, model.sorted_proba(x))
