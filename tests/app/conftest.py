from __future__ import annotations

import shutil

import pytest

import cala
from app.clients import client_of
from model.photos import ENCODER, write_photos


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """known/ (classes 0-11) and test/ (0-15, 18)."""
    root = tmp_path_factory.mktemp("photos")
    write_photos(root / "known", range(12), range(8))
    write_photos(root / "test", range(16), range(100, 103))
    write_photos(root / "test", range(18, 19), range(100, 103))
    return root


@pytest.fixture(scope="session")
def fitted(photos, tmp_path_factory):
    """A model that no test may change."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALA_CACHE", str(tmp_path_factory.mktemp("cache")))
        return cala.fit(photos / "known", tmp_path_factory.mktemp("models") / "m", encoder=ENCODER)


@pytest.fixture
def folder(fitted, tmp_path):
    """A copy of it that may be changed."""
    shutil.copytree(fitted.path, tmp_path / "birds")
    return tmp_path / "birds"


@pytest.fixture
def client(folder):
    with client_of(folder) as opened:
        yield opened
