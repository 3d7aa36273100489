"""Shards of a set: the numbers of an embeddings file, slice by slice, each image once."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from cala.data.sets import open_images
from cala.data.shard_rows import open_shards
from cala.encoders.encode import encode_set
from cala.encoders.encode_shards import encode_shards, encode_slice
from encoders.tiny import counting_encoder, noise_set
from refusals import refused

IMAGES = noise_set([5, 6, 7, 4], [2, 3, 2, 2])


def encoded(out, encoder=None, **options):
    usual = {"base": range(3), "rows": 4, "half": False, "pairs": 3, "fake_images": 4}
    return open_shards(
        encode_shards(IMAGES, encoder or counting_encoder(), out, **{**usual, **options})
    )


def test_the_numbers_are_those_of_an_embeddings_file(tmp_path):
    encoder = counting_encoder(pretrained=True, scale=7.0)
    shards = encoded(tmp_path / "a.shards", encoder, tta="flip")
    file = encode_set(IMAGES, encoder, base=range(3), novel=(), tta="flip", pairs=3, fake_images=4)
    for split in ("train", "test"):
        x = np.concatenate([rows for rows, _ in shards.blocks(split)])
        np.testing.assert_allclose(
            x, getattr(file, f"x_{split}"), rtol=1.3e-6, atol=1e-5, strict=True
        )
        np.testing.assert_array_equal(
            shards.labels(split), getattr(file, f"y_{split}"), strict=True
        )
        assert tuple(shards.names(split)) == getattr(file, f"names_{split}")
    np.testing.assert_array_equal(shards.holdout(), file.holdout, strict=True)
    np.testing.assert_array_equal(shards.fakes().pairs, file.fakes.pairs, strict=True)
    np.testing.assert_allclose(
        shards.fakes().features, file.fakes.features, rtol=1.3e-6, atol=1e-5, strict=True
    )
    assert shards.manifest.scale == 7.0
    assert shards.manifest.complete


def test_stopped_it_goes_on_with_what_is_missing(tmp_path):
    encoder, out = counting_encoder(), tmp_path / "a.shards"

    def two(pieces):
        for number, piece in enumerate(pieces):
            if number == 2:
                raise KeyboardInterrupt
            yield piece.key, encode_slice(encoder, piece)

    with pytest.raises(KeyboardInterrupt):
        encoded(out, encoder, pairs=0, work=two)
    assert encoder.forward.images == 8
    calls = []
    encoded(out, encoder, pairs=0, advance=lambda done, total: calls.append((done, total)))
    assert encoder.forward.images == 22 + 9
    assert calls[0] == (8, 31)
    assert calls[-1] == (31, 31)


def test_slices_done_in_any_order_make_the_same_folder(tmp_path):
    def backwards(pieces):
        for piece in reversed(list(pieces)):
            yield piece.key, encode_slice(counting_encoder(), piece)

    encoded(tmp_path / "a.shards", pairs=0)
    encoded(tmp_path / "b.shards", pairs=0, work=backwards)
    for path in (tmp_path / "a.shards").glob("[!.]*"):
        assert path.read_bytes() == (tmp_path / "b.shards" / path.name).read_bytes()


def test_a_damaged_shard_is_made_again(tmp_path):
    out = tmp_path / "a.shards"
    encoded(out, pairs=0)
    damaged = out / "shard-00001.safetensors"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    encoder = counting_encoder()
    encoded(out, encoder, pairs=0)
    assert damaged.read_bytes() == whole
    assert encoder.forward.images == 4


def test_a_photo_of_another_size_is_noticed(tmp_path):
    for number in range(4):
        place = tmp_path / "photos" / f"class {number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.full((8, 8, 3), 40 * number, dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.png")
    options = {"base": range(2), "pairs": 0}
    photos, out = tmp_path / "photos", tmp_path / "a.shards"
    encode_shards(open_images(photos, "folder"), counting_encoder(), out, **options)
    noise = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(noise).save(photos / "class 0" / "2.png")
    with refused(out, field="images", code="other_folder"):
        encode_shards(open_images(photos, "folder"), counting_encoder(), out, **options)


def test_a_folder_of_another_collection_is_refused(tmp_path):
    encoded(tmp_path / "a.shards", pairs=0)
    other = noise_set([5, 6, 7, 5], [2, 3, 2, 2])
    with refused(field="images", code="other_folder"):
        encode_shards(
            other, counting_encoder(), tmp_path / "a.shards", base=range(3), rows=4, half=False,
            pairs=0,
        )  # fmt: skip
    with refused("0", field="rows"):
        encoded(tmp_path / "b.shards", rows=0)


def test_held_out_rows_are_known_slice_by_slice(tmp_path):
    held = frozenset(IMAGES.train.digests(np.array([1, 9])))
    shards = encoded(tmp_path / "a.shards", counting_encoder(holdout=held))
    assert np.flatnonzero(shards.holdout()).tolist() == [1, 9]


def test_other_base_classes_or_fakes_are_another_folder(tmp_path):
    encoder = counting_encoder(pretrained=True)
    encoded(tmp_path / "a.shards", encoder)
    with refused(field="base", code="other_folder"):
        encoded(tmp_path / "a.shards", encoder, base=range(2), novel=())
    with refused(field="fakes", code="other_folder"):
        encoded(tmp_path / "a.shards", encoder, seed=1)
