"""A whole set: embeddings, hold-out, fake classes, and how often the encoder is called."""

from __future__ import annotations

import os

import numpy as np

from cala.benchmark.sources import Source
from cala.core.fakes import LAMBDA_RANGE
from cala.data.embeddings import load_embeddings, save_embeddings
from cala.encoders import fakes
from cala.encoders.encode import encode_set
from cala.encoders.fakes import _digests, encode_fakes
from encoders.tiny import counting_encoder, noise_set
from refusals import refused


def test_one_forward_per_image_and_nothing_the_second_time(tmp_path):
    images, encoder = noise_set([6, 6, 6, 6], [2, 2, 2, 2]), counting_encoder()
    seen = []
    found = encode_set(
        images, encoder, base=range(3), pairs=2, fake_images=4,
        advance=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert encoder.forward.images == 24 + 8 + 2 * 4
    assert seen[-1] == (40, 40)
    assert found.x_train.shape == (24, 5)
    assert found.class_names == images.classes
    assert found.names_train == images.train.names
    assert found.holdout is None
    assert found.fakes.features.shape == (2, 4, 5)
    assert found.fakes.pairs.max() < 3
    again = encode_set(images, encoder, base=range(3), pairs=2, fake_images=4)
    assert encoder.forward.images == 40
    np.testing.assert_array_equal(again.fakes.features, found.fakes.features, strict=True)
    path = save_embeddings(tmp_path / "a.npz", found)
    np.testing.assert_array_equal(load_embeddings(path).x_test, found.x_test, strict=True)
    assert load_embeddings(path).provenance["encoder"] == "counting"


def test_all_sessions_of_cifar100_take_10000_test_forwards():
    """The field's loop extracts 72,000: 60, 65, … 100 classes' test images, session by session."""
    from cala.benchmark.config import RunConfig
    from cala.benchmark.runner import run_records
    from cala.benchmark.task import BenchTask
    from cala.data.protocol import make_protocol

    images, encoder = noise_set([6] * 100, [100] * 100), counting_encoder()
    protocol = make_protocol(100, 60, 5, 5, 8)
    data = encode_set(images, encoder, base=range(60), pairs=0).relabelled(protocol)
    config = RunConfig("noise", ("nearest-mean",), ("random:0", "random:1"))
    records = run_records(config, BenchTask(Source(data, ""), protocol))
    assert len(records) == 2 * 9
    assert encoder.forward.images == 600 + 10_000


def test_base_labels_need_not_come_first():
    images, encoder = noise_set([6, 6, 6, 6], [1, 1, 1, 1]), counting_encoder()
    found = encode_set(images, encoder, base=[3, 1], pairs=5, fake_images=3)
    assert found.fakes.pairs.tolist() == [[1, 3]]


def test_held_out_images_are_flagged_and_not_mixed():
    images = noise_set([6, 6, 6], [1, 1, 1])
    digests = images.train.digests()
    held = frozenset([digests[1], digests[7], digests[13]])
    encoder = counting_encoder(holdout=held, scale=12.0)
    found = encode_set(images, encoder, base=range(2), pairs=1, fake_images=50)
    assert np.flatnonzero(found.holdout).tolist() == [1, 7]  # 13 is of a novel class
    assert found.scale == 12.0
    parents = [r for r in range(12) if r not in (1, 7)]
    direct = counting_encoder()(images.train.pixels.array[parents])
    weights = np.linalg.lstsq(direct.T, found.fakes.features[0].T, rcond=None)[0]
    assert weights.shape == (10, 5)  # every fake is a mix of the others, none of them used twice
    for fake in found.fakes.features[0]:
        assert _mixes(fake, direct[:5], direct[5:])


def _mixes(fake, first, second) -> bool:
    """Whether `fake` is λ·a + (1 − λ)·b for some a, b and a λ in range."""
    for a in first:
        for b in second:
            span = a - b
            lam = float((fake - b) @ span / (span @ span))
            low, high = LAMBDA_RANGE
            if low - 1e-3 <= lam <= high + 1e-3 and np.allclose(fake, b + lam * span, atol=1e-4):
                return True
    return False


def test_an_encoder_of_other_images_finds_all_of_them_fair():
    images = noise_set([4, 4, 4], [1, 1, 1])
    found = encode_set(images, counting_encoder(pretrained=True), base=range(2), pairs=0)
    assert found.holdout.tolist() == [True] * 8 + [False] * 4
    assert found.fakes is None


def test_fakes_fit_into_memory(monkeypatch):
    monkeypatch.setattr("cala.encoders.fakes.PARENTS", 8 * 3 * 8 * 8)
    images, encoder = noise_set([50, 50], [1, 1]), counting_encoder()
    pool = encode_fakes(images.train, np.arange(100), encoder, pairs=1, images=30)
    assert pool.features.shape == (1, 30, 5)
    assert len(np.unique(pool.features[0], axis=0)) > 10
    with refused("0", field="pairs"):
        encode_fakes(images.train, np.arange(100), encoder, pairs=0)


def test_fakes_are_the_same_however_few_parents_are_decoded_at_once(monkeypatch):
    images = noise_set([9, 9, 9], [1, 1, 1])
    decoded = []

    def stacked(parents, rows, transform):
        decoded.append(len(rows))
        return original(parents, rows, transform)

    original = fakes.stack_rows
    monkeypatch.setattr(fakes, "stack_rows", stacked)
    pools = []
    for number, memory in enumerate((fakes.MEMORY, 5 * 3 * 8 * 8, 1)):
        monkeypatch.setattr(fakes, "MEMORY", memory)
        monkeypatch.setenv("CALA_CACHE", os.environ["CALA_CACHE"] + str(number))
        decoded.clear()
        pools.append(
            encode_fakes(images.train, np.arange(27), counting_encoder(), pairs=3, images=7)
        )
        assert max(decoded) <= max(2, memory // (3 * 8 * 8))
    for pool in pools[1:]:
        np.testing.assert_allclose(
            pool.features, pools[0].features, rtol=1.3e-6, atol=1e-5, strict=True
        )


def test_the_share_of_a_mix_is_part_of_what_it_is_known_by():
    one, two = _digests(["00" * 32, "11" * 32], [0, 0], [1, 1], np.array([0.4, 0.6], np.float32))
    assert one != two


def test_copies_of_a_held_out_image_are_held_out_too():
    images = noise_set([6, 6, 6], [1, 1, 1])
    array = images.train.pixels.array
    array[3], array[8] = array[1], array[1]  # in its own class, and in another one
    encoder = counting_encoder(holdout=frozenset([images.train.digests()[1]]))
    found = encode_set(images, encoder, base=range(2), pairs=0)
    assert np.flatnonzero(found.holdout).tolist() == [1, 3, 8]


def test_images_that_trained_the_encoder_do_not_test_it():
    images = noise_set([4, 4, 4], [1, 1, 1])
    digests = images.test.digests()
    encoder = counting_encoder(trained=frozenset([digests[1][:32]]))
    with refused("test/1", code="leakage"):
        encode_set(images, encoder, base=range(2), pairs=0)
    assert encoder.forward.images == 0
