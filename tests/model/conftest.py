from __future__ import annotations

import shutil

import pytest

import cala
from model.photos import ENCODER, write_photos


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """known/ (classes 0-11), new/ (12-15), test/ (0-15) and strange/ (16-19)."""
    root = tmp_path_factory.mktemp("photos")
    write_photos(root / "known", range(12), range(8))
    write_photos(root / "new", range(12, 16), range(5))
    write_photos(root / "test", range(20), range(100, 106))
    return root


@pytest.fixture(scope="session")
def fitted(photos, tmp_path_factory):
    """A model that no test may change."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALA_CACHE", str(tmp_path_factory.mktemp("cache")))
        out = tmp_path_factory.mktemp("models") / "m"
        return cala.fit(photos / "known", out, encoder=ENCODER, keep_thumbnails=False)


@pytest.fixture
def model(fitted, tmp_path):
    """A copy of it."""
    shutil.copytree(fitted.path, tmp_path / "birds")
    return cala.load(tmp_path / "birds")
