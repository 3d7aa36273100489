"""One classifier, many threads: whole changes, all of them."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
from sklearn.base import clone

from cala import CalaClassifier
from cala.estimator import growing
from cala.heads import AdaptedHead
from problems import blobs

X, Y = blobs(30, 8, 6)
BASE = Y < 12


@pytest.fixture(scope="module")
def fitted_once():
    return CalaClassifier("la").fit(X[BASE], Y[BASE], holdout="all")


@pytest.fixture
def model(fitted_once):
    return copy.deepcopy(fitted_once)


def shots(label):
    return X[label == Y][:3], Y[label == Y][:3]


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_who_reads_during_a_change_sees_the_state_before_it(model, method, monkeypatch):
    """A class comes and another goes between the first rows and the last."""
    monkeypatch.setattr(growing, "PREDICT_ROWS", 100)
    model.partial_fit(*shots(12))
    expected = getattr(model, method)(X)
    real, changes = AdaptedHead.unit_logits, []

    def logits(self, unit, members=None):
        found = real(self, unit, members)
        if not changes:
            changes.append("begun")
            model.partial_fit(*shots(13)).forget(0).forget(12)
        return found

    monkeypatch.setattr(AdaptedHead, "unit_logits", logits)
    np.testing.assert_array_equal(getattr(model, method)(X), expected)
    assert changes
    assert model.classes_.tolist() == [*range(1, 12), 13]


def test_a_new_fit_of_another_dimension_does_not_reach_who_reads(model, monkeypatch):
    expected = model.predict(X)
    real, changes = AdaptedHead.unit_logits, []

    def logits(self, unit, members=None):
        if not changes:
            changes.append("begun")
            model.fit(X[BASE][:, :4], Y[BASE] + 100, holdout="all")
        return real(self, unit, members)

    monkeypatch.setattr(AdaptedHead, "unit_logits", logits)
    monkeypatch.setattr(growing, "PREDICT_ROWS", 100)
    np.testing.assert_array_equal(model.predict(X), expected)
    assert model.n_features_in_ == 4


def run(*tasks):
    errors = []

    def guarded(task):
        try:
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_changes_made_at_the_same_time_all_take_place(model, monkeypatch):
    """Every thread reads the state before any other has changed it."""
    real = AdaptedHead.add
    together = threading.Barrier(4)
    arrived = set()

    def add(self, features, labels):
        if threading.get_ident() not in arrived:
            arrived.add(threading.get_ident())
            together.wait(timeout=60)
        return real(self, features, labels)

    with monkeypatch.context() as patch:
        patch.setattr(AdaptedHead, "add", add)
        run(*(lambda label=label: model.partial_fit(*shots(label)) for label in range(12, 16)))
    assert model.classes_.tolist()[:12] == list(range(12))
    assert sorted(model.classes_.tolist()[12:]) == [12, 13, 14, 15]
    assert model.n_shots_[12:].tolist() == [3] * 4
    alone = CalaClassifier("la").fit(X[BASE], Y[BASE], holdout="all")
    for label in model.classes_[12:]:
        alone.partial_fit(*shots(label))
    np.testing.assert_allclose(model.decision_function(X), alone.decision_function(X))


def test_readers_and_writers_go_on_together(model):
    rounds, seen = 3, set()
    writing = threading.Semaphore(0)

    def read():
        while not writing.acquire(blocking=False):  # until one of the writers is done
            now = copy.copy(model)
            assert len(now.classes_) == len(now.beta_) == len(now.n_shots_)
            known = set(range(30))
            assert set(model.predict(X[:40]).tolist()) <= known
            seen.add(model.predict_proba(X[:40]).shape[1])

    def write(first):
        try:
            for _ in range(rounds):
                for label in range(first, first + 9):
                    model.partial_fit(*shots(label))
                model.set_operating_point(delta=0.5)
                for label in range(first, first + 9):
                    model.forget(label)
        finally:
            writing.release()

    run(read, read, lambda: write(12), lambda: write(21))
    assert model.classes_.tolist() == list(range(12))
    assert seen


def test_it_is_pickled_copied_and_cloned_as_before(model):
    model.partial_fit(*shots(12))
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        again.partial_fit(*shots(13))
        assert len(model.classes_) == 13
    assert not hasattr(clone(model), "classes_")
