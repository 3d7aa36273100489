"""Photos of none of the classes: kept, counted, undone, and of use."""

from __future__ import annotations

import numpy as np
import pytest

import cala
from model.photos import ENCODER, write_photos
from refusals import refused


@pytest.fixture
def model(tmp_path):
    known = write_photos(tmp_path / "known", range(4), range(6))
    return cala.fit(known, tmp_path / "m", encoder=ENCODER, fakes="feature")


def test_rejected_photos_are_kept_and_undone(model, tmp_path):
    other = write_photos(tmp_path / "other", range(8, 10), range(5))
    before = model.current.classifier.familiarity(np.eye(3, model.encoder.dim))
    model.reject(other)
    again = cala.load(model.path, trust_encoder=ENCODER)
    assert len(again.current.classifier.rejection_.rejected) == 10
    assert again.classes == model.classes
    assert again.history()[-1]["action"] == "reject"
    assert again.history()[-1]["photos"] == 10
    again.undo()
    assert len(again.current.classifier.rejection_.rejected) == 0
    after = again.current.classifier.familiarity(np.eye(3, model.encoder.dim))
    np.testing.assert_array_equal(after, before)
    again.redo()
    assert len(again.current.classifier.rejection_.rejected) == 10


def test_classes_that_are_added_later_keep_them(model, tmp_path):
    model.reject(write_photos(tmp_path / "other", range(8, 9), range(3)))
    model.add(write_photos(tmp_path / "new", range(5, 6), range(3)), "fifth")
    assert len(model.current.classifier.rejection_.rejected) == 3
    model.forget("fifth")
    assert len(model.current.classifier.rejection_.rejected) == 3


def test_nothing_to_reject(model, tmp_path):
    (tmp_path / "empty").mkdir()
    with refused(code="no_photos"):
        model.reject(tmp_path / "empty")
    assert model.version == 1


def test_a_photo_counts_once_and_on_one_side(model, tmp_path):
    other = write_photos(tmp_path / "other", range(8, 9), range(5))
    model.reject(other)
    model.reject(other)
    rejection = model.current.classifier.rejection_
    assert len(rejection.rejected) == 5
    with refused(code="two_labels"):
        model.reject(tmp_path / "known" / "class 0")
    assert model.version == 2
    model.add(sorted((other / "class 8").iterdir())[:2], "eighth")
    assert len(model.current.classifier.rejection_.rejected) == 3


def test_nothing_new_is_no_version(model, tmp_path):
    other = write_photos(tmp_path / "other", range(8, 9), range(3))
    model.reject(other)
    assert model.reject(other).version == 2
    more = write_photos(tmp_path / "other", range(8, 9), range(4))
    assert model.reject(more).history()[-1]["photos"] == 1
