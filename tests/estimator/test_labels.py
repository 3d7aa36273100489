"""Labels stay what the user gave: one type, no two folded into one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cala import CalaClassifier
from cala.estimator.labels import find_label, given_labels, labels_like
from problems import blobs
from refusals import refused

X, COLUMNS = blobs(8, 6, 5)
BASE = COLUMNS < 6


def fitted(labels):
    """A classifier whose six base classes have the given labels."""
    return CalaClassifier("nearest-mean").fit(X[BASE], np.asarray(labels)[COLUMNS[BASE]])


def added(model, label):
    return model.partial_fit(X[COLUMNS == 6], [label] * 6)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.uint64, np.float32, np.float64])
@pytest.mark.parametrize("as_given", [int, float, np.int64, np.uint8, np.uint64])
def test_new_classes_take_the_type_of_the_old(dtype, as_given):
    model = added(fitted(np.arange(6, dtype=dtype)), as_given(7))
    assert model.classes_.dtype == dtype
    assert model.classes_.tolist() == [0, 1, 2, 3, 4, 5, 7]
    assert model.predict(X).dtype == dtype
    added(model, as_given(3))
    assert model.n_shots_[3] == 12, "a known class is known in every number type"


@pytest.mark.parametrize(
    ("dtype", "label"),
    [
        (np.uint8, 300),
        (np.uint8, -1),
        (np.int64, 2**63),
        (np.float64, 2**53 + 1),
        (np.float32, 2**24 + 1),
    ],
)
def test_a_label_that_does_not_fit_is_refused(dtype, label):
    model = fitted(np.arange(6, dtype=dtype))
    with refused(label, np.dtype(dtype), field="y", code="label_type"):
        added(model, label)
    assert model.classes_.tolist() == [0, 1, 2, 3, 4, 5]


def test_large_numbers_stay_apart():
    large = np.arange(6, dtype=np.uint64) + np.uint64(2**63)
    model = added(fitted(large), 2**63 + 6)
    assert model.classes_.tolist() == [2**63 + i for i in range(7)]
    with refused(9007199254740993, "9007199254740992.0", field="y", code="label_type"):
        given_labels([2**53 + 1, 2.0])
    with refused(2**64, 64, code="label_type"):
        given_labels([2**64, 1])
    with refused(2**63, -1, 64, code="label_type"):
        given_labels([2**63, -1])
    assert given_labels([np.uint64(5), 3]).dtype == np.uint64


@pytest.mark.parametrize("kind", ["Int64", "UInt8", "int32", "category", "object"])
def test_whole_numbers_of_pandas_stay_whole(kind):
    labels = pd.Series(COLUMNS[BASE]).astype(kind)
    model = CalaClassifier("nearest-mean").fit(X[BASE], labels)
    assert model.classes_.dtype.kind in "iu"
    added(model, 6)
    more = pd.Series([7] * 6, dtype="Int64")
    assert model.partial_fit(X[COLUMNS == 7], more).classes_.tolist() == list(range(8))


def test_strings_may_widen_and_never_lose_a_character():
    model = added(fitted(["a", "b", "c", "d", "e", "f"]), "a longer one")
    assert model.classes_.tolist()[-1] == "a longer one"
    added(model, np.str_("c"))
    assert len(model.classes_) == 7
    strings = pd.Series(["g"] * 6, dtype="string")
    assert model.partial_fit(X[COLUMNS == 7], strings).classes_.tolist()[-1] == "g"
    with refused(r"'c\x00'", code="null_character"):
        added(model, "c\0")
    with refused(r"'c\x00'", code="unknown_class"):
        model.forget("c\0")


MISSING = [None, float("nan"), pd.NA, pd.NaT]


@pytest.mark.parametrize("missing", MISSING, ids=str)
@pytest.mark.parametrize("others", ["a", 1])
def test_a_missing_label_is_named_with_its_row(missing, others):
    with refused("row 2", missing, code="no_label"):
        given_labels([others, others, missing])


@pytest.mark.parametrize(
    ("labels", "code", "named"),
    [
        (["a", 1], "mixed_labels", ("strings", "numbers")),
        ([True, 2], "mixed_labels", ("booleans", "numbers")),
        (["a", True], "mixed_labels", ("strings", "booleans")),
        ([b"a"], "label_type", ("bytes",)),
        (np.array([b"a"]), "label_type", ("bytes",)),
        ([[1], [2, 3]], "label_type", ("row 0", "[1]", "list")),
        ([1j], "label_type", ("1j", "complex")),
    ],
)
def test_what_is_no_label_is_refused(labels, code, named):
    with refused(*named, field="y", code=code):
        given_labels(labels)


def test_kinds_do_not_mix_with_what_is_known():
    with refused("booleans", "numbers", code="mixed_labels"):
        labels_like(np.array([True]), np.arange(3))
    assert find_label(True, np.arange(3)) is None
    assert find_label("1", np.arange(3)) is None
    assert find_label(1.0, np.arange(3)) == 1
    assert find_label([1], np.arange(3)) is None
    assert find_label(None, np.array(["a", "None"])) is None
    assert find_label(np.array(2), np.arange(3)) == 2


def test_forgetting_speaks_of_the_users_own_labels():
    model = fitted([10, 20, 30, 40, 50, 60])
    with refused(True, code="unknown_class") as error:
        model.forget(True)
    assert "10, 20" in error.value.fix
    for label in (10, 20, 30, 40):
        model.forget(label)
    with refused(60, code="too_few_classes"):
        model.forget(60)
    assert model.classes_.tolist() == [50, 60]
