"""A model in Python and in notebooks: folders, arrays, probabilities, exports, small photos."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image

import cala
from cala.errors import LeftOutWarning
from model.photos import ENCODER, photo, write_photos
from refusals import refused


@pytest.fixture
def small(tmp_path):
    known = write_photos(tmp_path / "known", range(3), range(5))
    return cala.fit(known, tmp_path / "model", encoder=ENCODER, fakes="feature")


def test_add_and_evaluate_take_a_folder_per_class(small, tmp_path):
    new = write_photos(tmp_path / "new", range(3, 5), range(4))
    assert small.add(new).photos == {"class 3": 4, "class 4": 4}
    test = write_photos(tmp_path / "test", range(6), range(100, 102))
    found = small.evaluate(test)
    assert (found.photos, found.rejections.strange_photos) == (10, 2)
    (test / "class 0" / "film.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    with pytest.warns(LeftOutWarning):
        small.evaluate(test)
    with refused(code="no_labels"):
        small.add([photo(5, 1)])


def test_arrays_pictures_and_lists_of_them(small):
    pixels = photo(1, 50)
    assert small.predict(pixels, unknown="off") == ["class 1"]
    mixed = [pixels, Image.fromarray(photo(2, 50))]
    assert small.predict(mixed, unknown="off") == ["class 1", "class 2"]
    assert small.predict(np.stack([pixels, pixels]), unknown="off") == ["class 1"] * 2
    shares = small.predict_proba(mixed)
    assert shares.shape == (2, 3)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
    assert shares.argmax(1).tolist() == [1, 2]


def test_export(small, tmp_path):
    done = small.export(tmp_path / "birds.onnx")
    assert (done.classes, (tmp_path / "birds.onnx").exists()) == (3, True)


def test_small_photos_are_kept_unless_nobody_wants_them(small, tmp_path):
    def count(model):
        return len(list((model.path / "thumbnails").glob("*.jpg")))

    assert count(small) == 15
    small.add(photo(4, 1), "fourth")
    assert count(small) == 16
    small.add(photo(4, 2), "fourth", keep_thumbnails=False)
    assert count(small) == 16
    how = {"encoder": ENCODER, "fakes": "feature", "keep_thumbnails": False}
    bare = cala.fit(tmp_path / "known", tmp_path / "bare", **how)
    bare.add(photo(4, 1), "fourth")
    assert not (bare.path / "thumbnails").exists()


def test_a_notebook_shows_classes_and_photos(small):
    small.rename("class 0", "a <b> c")
    page = small._repr_html_()
    assert page.count("<img") == 15
    assert "a &lt;b&gt; c" in page
    assert "<b> c" not in page


def test_a_notebook_shows_progress(small, monkeypatch, tmp_path):
    told = []

    @contextmanager
    def bar(*about):
        yield lambda *count: told.append((*about, *count))

    monkeypatch.setattr("cala.progress.counting", bar)
    monkeypatch.setattr("cala.progress.progress_bar", bar)
    small.predict(photo(1, 60))
    assert told == []
    monkeypatch.setattr("cala.model.notebook.is_notebook", lambda: True)
    small.predict(photo(1, 61))
    assert told[-1] == ("looking at photos", 1, 1)
    cala.fit(tmp_path / "known", tmp_path / "again", encoder=ENCODER, fakes="feature")
    assert told[-1][1:] == (15, 15)
