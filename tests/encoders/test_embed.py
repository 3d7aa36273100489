"""Each image passes through the encoder once, ever."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cala.data.cache import RowCache
from cala.encoders import Transform
from cala.encoders.embed import EmbeddingCache, embed, encode_views
from cala.errors import InputError
from encoders.tiny import counting_encoder, noise_set
from refusals import refused


def direct(encoder, split):
    return encoder(split.pixels.array)


def test_embeddings_are_the_encoders_and_come_once():
    images, encoder = noise_set([7, 6], [3, 3]), counting_encoder()
    done = []
    first = embed(images.train, encoder, advance=done.append)
    assert encoder.forward.images == 13
    assert sum(done) == 13
    np.testing.assert_allclose(first, direct(counting_encoder(), images.train), rtol=1e-5)
    again = embed(images.train, encoder, rows=[5, 2, 2])
    np.testing.assert_array_equal(again, first[[5, 2, 2]])
    assert encoder.forward.images == 13


def test_same_image_twice_is_one_forward():
    images, encoder = noise_set([4, 4], [1, 1]), counting_encoder()
    embed(images.train.take([0, 0, 0, 1]), encoder)
    assert encoder.forward.images == 2


def test_flip_averages_both_views_and_each_is_encoded_once():
    images, encoder = noise_set([4, 4], [1, 1]), counting_encoder()
    plain = embed(images.train, encoder)
    both = embed(images.train, encoder, tta="flip")
    assert encoder.forward.images == 16  # 8 plain, then 8 mirrored only
    mirrored = counting_encoder()(images.train.pixels.array[:, :, ::-1])
    np.testing.assert_allclose(both, (plain + mirrored) / 2, rtol=1e-4, atol=1e-5)
    with refused("'rotate'", field="tta", code="unknown_name"):
        embed(images.train, encoder, tta="rotate")


def test_other_weights_and_other_transforms_do_not_share():
    images = noise_set([4, 4], [1, 1])
    a, b = counting_encoder(0), counting_encoder(1)
    assert not np.allclose(embed(images.train, a), embed(images.train, b))
    assert b.forward.images == 8


def test_other_sizes_of_the_same_encoder_do_not_share():
    images, encoder = noise_set([4, 4], [1, 1], side=12), counting_encoder()
    embed(images.train, encoder)
    wider = replace(encoder, transform=Transform(8, 12))
    np.testing.assert_allclose(embed(images.train, wider), direct(wider, images.train), rtol=1e-5)


def test_mirrored_mixes_are_kept_apart_from_mirrored_images():
    """Both under one name would find each other's embeddings where digests meet."""
    images, encoder = noise_set([3, 3], [1, 1]), counting_encoder()
    digests = [bytes.fromhex(d) for d in images.train.digests()]
    for kind, views in (("plain", ("plain", "flip")), ("mix", ("mix", "mix-flip"))):

        def make(rows, shift=float(kind == "mix")):
            inputs = encoder.inputs(images.train.pixels.array[rows]) + shift
            return lambda now: inputs[now]

        found = encode_views(encoder, kind, "flip", digests, make)
        parts = [EmbeddingCache(encoder, view).find(digests)[0] for view in views]
        np.testing.assert_allclose(found, (parts[0] + parts[1]) / 2, rtol=1e-5)
        inputs = make(range(6))(slice(6))
        expected = (encoder.encode(inputs) + encoder.encode(inputs[..., ::-1])) / 2
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_what_another_process_left_meanwhile_is_not_encoded_again(monkeypatch):
    images, encoder = noise_set([4, 4], [1, 1]), counting_encoder()
    other = counting_encoder()
    find = EmbeddingCache.find
    calls = []

    def late(cache, digests):
        found = find(cache, digests)
        calls.append(len(digests))
        if len(calls) == 1:  # between the first look and the claim, another one does it all
            embed(images.train, other)
        return found

    monkeypatch.setattr(EmbeddingCache, "find", late)
    done = []
    embed(images.train, encoder, advance=done.append)
    assert other.forward.images == 8
    assert encoder.forward.images == 0
    assert sum(done) == 8


def test_nan_is_not_kept():
    images, encoder = noise_set([4, 4], [1, 1]), counting_encoder()
    encoder.forward.matrix[:] = float("nan")
    with pytest.raises(InputError) as caught:
        embed(images.train, encoder)
    assert caught.value.code == "not_finite"
    assert RowCache("embeddings").size() == (0, 0)


def test_killed_in_the_middle_only_the_last_turn_is_lost(monkeypatch):
    monkeypatch.setattr("cala.encoders.embed.BATCH_ROWS", 4)
    monkeypatch.setattr("cala.encoders.embed.batch_size", lambda encoder: 2)
    images, encoder = noise_set([10, 10], [1, 1]), counting_encoder()

    class Killed(BaseException):
        pass

    finished = []

    def stop(done):
        finished.append(done)
        if sum(finished) == 14:
            raise Killed

    with pytest.raises(Killed):
        embed(images.train, encoder, advance=stop)
    before = encoder.forward.images  # workers may be ahead, within the turn
    assert 14 <= before <= 16
    embed(images.train, encoder)
    assert encoder.forward.images == before + (20 - 12)
