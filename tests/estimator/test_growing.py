"""The classifier without scikit-learn: the same answers, and refusals of its own."""

from __future__ import annotations

import numpy as np
import pytest

from cala import CalaClassifier
from cala.estimator.growing import GrowingClassifier
from problems import blobs
from refusals import refused

X, Y = blobs(10, 20, 6)
BASE = Y < 7


def grown(kind: type[GrowingClassifier]) -> GrowingClassifier:
    model = kind("cala").fit(X[BASE], Y[BASE], holdout="all")
    return model.partial_fit(X[~BASE], Y[~BASE])


def test_same_answers_as_the_estimator():
    plain, estimator = grown(GrowingClassifier), grown(CalaClassifier)
    assert np.array_equal(plain.predict_proba(X), estimator.predict_proba(X))
    assert np.array_equal(plain.familiarity(X), estimator.familiarity(X))
    assert plain.options() == sorted(estimator.get_params(), key=plain.options().index)


@pytest.mark.parametrize(
    ("rows", "code", "named"),
    [
        (X[0], "wrong_shape", "(6,)"),
        (X[:, :5], "wrong_dimensions", "5"),
        (X.astype(str), "not_numbers", "<U"),
        (np.where(X[0, 0] == X, np.nan, X), "not_finite", "row 0"),
        ([[1.0, 2.0], [3.0]], "not_an_array", ""),
        (X[:0], "wrong_shape", "(0, 6)"),
    ],
)
def test_rows_that_are_refused(rows, code, named):
    model = grown(GrowingClassifier)
    with refused(named, field="X", code=code):
        model.predict(rows)
    with refused(named, field="X", code=code):
        model.partial_fit(rows, Y)
    assert len(model.classes_) == 10


def test_labels_of_another_number():
    with refused((len(X) - 1,), field="y", code="wrong_shape"):
        GrowingClassifier().fit(X, Y[:-1])


def test_no_labels():
    with refused("()", field="y", code="wrong_shape"):
        GrowingClassifier().fit(X, None)


@pytest.mark.parametrize("kind", [GrowingClassifier, CalaClassifier])
def test_tensors_of_a_network_are_taken(kind):
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(X, requires_grad=True)
    model = kind("nearest-mean").fit(tensor[BASE], Y[BASE])
    assert np.array_equal(model.predict(tensor), model.predict(X))
    assert np.array_equal(model.predict(torch.nn.Parameter(tensor)), model.predict(X))
    assert len(model.predict(tensor.to(torch.bfloat16))) == len(X)
    fakes = torch.tensor(X[~BASE]).reshape(-1, 10, X.shape[1])
    given = [kind("la").fit(X[BASE], Y[BASE], f, holdout="all") for f in (fakes, fakes.numpy())]
    assert given[0].head_.adapter.parameters == given[1].head_.adapter.parameters


def test_without_a_fit():
    model = GrowingClassifier()
    assert not hasattr(model, "prototypes_")
    for ask in (lambda: model.predict(X), lambda: model.partial_fit(X, Y), lambda: model.head_):
        with pytest.raises(AttributeError, match="fit"):
            ask()
