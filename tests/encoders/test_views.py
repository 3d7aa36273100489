"""An encoder of several views: what it gives, fewer of them, the cache, and old files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cala.core.cala import normalise
from cala.encoders import ARCHITECTURES, Transform, load_encoder
from cala.encoders.encode import encode_set
from cala.encoders.views import VIEWS, fantasy
from cala.encoders.weights import load_encoder_file, save_encoder
from encoders.tiny import noise_set
from refusals import refused

TRANSFORM = Transform(size=8, resize=8)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # of two engines


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    return ARCHITECTURES["resnet20"]().eval()


@pytest.fixture
def save(module, tmp_path):
    def write(views: float | None, name: str = "encoder.safetensors"):
        parts = {} if views is None else {VIEWS: torch.tensor([float(views)])}
        path = tmp_path / name
        save_encoder(path, module, architecture="resnet20", transform=TRANSFORM, parts=parts)
        return path

    return write


def encoded(encoder, images: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(encoder.encode(images.numpy()))


@pytest.mark.parametrize("views", [2, 4, 12])
def test_views_stand_side_by_side(save, module, views):
    encoder = load_encoder_file(save(views))
    images = torch.randn(3, 3, 8, 8)
    with torch.no_grad():
        each = [F.normalize(module(fantasy(images, view)), dim=1) for view in range(views)]
    assert encoder.dim == views * 64
    assert encoder.module.views == views
    torch.testing.assert_close(encoded(encoder, images), torch.cat(each, 1))


def test_one_view_is_the_plain_encoder(save, module):
    plain, one = load_encoder_file(save(None)), load_encoder_file(save(1, "one.safetensors"))
    assert (one.dim, one.fingerprint, one.key) == (64, plain.fingerprint, plain.key)
    images = torch.randn(3, 3, 8, 8)
    first = load_encoder(save(2, "two.safetensors"), views=1)
    for encoder in (plain, one, first):
        with torch.no_grad():
            torch.testing.assert_close(encoded(encoder, images), module(images), **CLOSE)


def test_fewer_views_are_the_first_and_have_a_cache_of_their_own(save, tmp_path, monkeypatch):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    path = save(4)
    images = torch.randn(3, 3, 8, 8)
    whole = load_encoder(path)
    keys = {whole.key}
    for views in (3, 2, 1):
        fewer = load_encoder(path, views=views)
        assert fewer.parts[VIEWS].tolist() == [views]
        assert fewer.name == f"views:{views}:{path}"
        found = F.normalize(encoded(fewer, images).unflatten(1, (views, 64)), dim=2)
        expected = encoded(whole, images).unflatten(1, (4, 64))[:, :views]
        torch.testing.assert_close(found, expected, **CLOSE)
        same = load_encoder(f"views:{views}:{path}")
        assert (same.key, same.dim) == (fewer.key, fewer.dim)
        keys.add(fewer.key)
    assert len(keys) == 4  # so their embeddings are kept apart
    assert load_encoder(path, views=4).key == load_encoder(path, views=9).key == whole.key
    assert load_encoder("resnet20-cifar100", views=2).dim == 64


def test_a_set_through_several_views(save, tmp_path, monkeypatch):
    """Mixed images have views as well, and the number of views is in the embeddings."""
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    images = noise_set([4, 4, 4], [2, 2, 2])
    whole = encode_set(images, load_encoder(save(2)), base=[0, 1], pairs=2, fake_images=3)
    one = encode_set(images, load_encoder(save(2), views=1), base=[0, 1], pairs=2, fake_images=3)
    assert whole.x_train.shape == (12, 128)
    assert whole.fakes.features.shape[2] == 128
    for many, single in ((whole.x_train, one.x_train), (whole.x_test, one.x_test)):
        np.testing.assert_allclose(many[:, :64], normalise(single), atol=1e-5)
    assert whole.parts[VIEWS].tolist() == [2]
    assert one.parts[VIEWS].tolist() == [1]


@pytest.mark.parametrize("views", [0, 2.5, 13])
def test_impossible_numbers_of_views(save, views):
    with refused(views, field="views"):
        load_encoder_file(save(views))


@pytest.mark.parametrize(
    ("uri", "field", "named", "fix"),
    [
        ("views:3:{path}", "views", "3 views", "1 to 2"),
        ("views:0:{path}", "views", "0 views", "1 to 2"),
        ("views:{path}", "encoder", "views:V:NAME", "views:1:"),
        ("views:1:", "encoder", "views:V:NAME", "views:1:"),
        ("views:2:resnet20-cifar100", "views", "2 views", "1 to 1"),
    ],
)
def test_bad_names(save, uri, field, named, fix):
    with refused(named, field=field) as caught:
        load_encoder(uri.format(path=save(2)))
    assert fix in caught.value.fix
    with refused("0", field="views"):
        load_encoder(save(2), views=0)
