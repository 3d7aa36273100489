"""What every registered encoder and every loader promises."""

from __future__ import annotations

import numpy as np
import pytest

from cala.encoders import ENCODERS, LOADERS, Encoder, load_encoder
from encoders.tiny_models import MODELS

ALL = [*ENCODERS, *(f"{name}:" for name in LOADERS)]


@pytest.fixture(scope="module")
def uris(tmp_path_factory):
    """(name, seed) -> URI; the model of a loader is made once."""
    made = {}

    def uri(name, seed=0):
        if name in ENCODERS:
            return name
        if (name, seed) not in made:
            folder = tmp_path_factory.mktemp(name.removesuffix(":"))
            made[name, seed] = folder, name + MODELS[name.removesuffix(":")](folder, seed)
        return made[name, seed]

    return uri


def load(found, monkeypatch) -> Encoder:
    if isinstance(found, str):
        return load_encoder(found)
    monkeypatch.chdir(found[0])
    return load_encoder(found[1])


@pytest.fixture(params=ALL)
def encoder(request, uris, monkeypatch):
    return load(uris(request.param), monkeypatch)


def test_it_knows_itself(encoder):
    assert encoder.name.split(":")[0] in {*ENCODERS, *LOADERS}
    assert encoder.dim >= 1
    assert encoder.transform.size >= 1
    assert len(encoder.fingerprint) == 64


def test_fingerprints(encoder, uris, monkeypatch):
    name = encoder.name if encoder.name in ENCODERS else encoder.name.split(":")[0] + ":"
    again = load(uris(name), monkeypatch)
    assert (again.fingerprint, again.key) == (encoder.fingerprint, encoder.key)
    if name not in ENCODERS:
        other = load(uris(name, seed=1), monkeypatch)
        assert other.fingerprint != encoder.fingerprint


def test_one_image_or_many(encoder):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 40, 50, 3), dtype=np.uint8)
    many = encoder(images)
    assert many.shape == (5, encoder.dim)
    assert many.dtype == np.float32
    assert np.isfinite(many).all()
    assert np.abs(many - many[:1]).max() > 0
    one = np.concatenate([encoder(images[i : i + 1]) for i in range(5)])
    np.testing.assert_allclose(one, many, rtol=1e-3, atol=1e-4 * np.abs(many).max())


def test_images_of_all_shapes(encoder):
    shapes = [(1, 1, 3), (1, 1), (7, 5, 1), (2000, 10, 3), (10, 2000), (33, 31, 3), (1, 900, 3)]
    images = [np.full(shape, 90, np.uint8) for shape in shapes]
    found = encoder(images)
    assert found.shape == (len(shapes), encoder.dim)
    np.testing.assert_allclose(found, np.broadcast_to(found[:1], found.shape), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", LOADERS)
def test_every_loader_is_listed_and_tested(name):
    assert name in MODELS
    assert LOADERS.summary(name).startswith(f"{name}:")
