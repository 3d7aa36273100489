"""CIFAR-100: packed and unpacked, damaged and hostile."""

from __future__ import annotations

import numpy as np
import pytest

from cala.data.check import check_data
from cala.data.protocol import load_protocol
from cala.data.sets import open_images
from cala.errors import InputError
from data.refusals import refused
from data.tiny_sets import cifar100, cifar_archive, cifar_content, picture, published_draw


def test_pixels_come_out_as_images(tmp_path):
    images = open_images(cifar100(tmp_path))
    assert images.classes == ("apple", "aquarium_fish", "baby")
    assert images.train.names[:2] == ("train/0", "train/1")
    assert np.array_equal(images.train.image(5), picture(11, 32, 32))
    assert np.array_equal(images.test.image(0), picture(1000, 32, 32))
    (batch,) = images.train.batches(100)
    assert isinstance(batch, np.ndarray)
    assert batch.shape == (12, 32, 32, 3)


def test_wherever_a_user_points(tmp_path):
    archive = cifar_archive(tmp_path / "packed")
    renamed = tmp_path / "download (1)"
    renamed.write_bytes(archive.read_bytes())
    unpacked = tmp_path / "packed" / "unpacked"
    places = [archive, renamed, unpacked, unpacked / "cifar-100-python"]
    opened = [open_images(place) for place in places]
    assert {images.name for images in opened} == {"cifar100"}
    assert len({images.fingerprint for images in opened}) == 1
    assert open_images(archive.parent).name == "cifar100"


def test_an_archive_that_is_cut_short(tmp_path):
    archive = cifar_archive(tmp_path)
    whole = archive.read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"no archive at all"):
        archive.write_bytes(content)
        with refused(code="damaged_file"):
            open_images(archive)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"meta": {b"label_names": [b"a"]}}, "meta: has no fine_label_names"),
        ({"meta": {b"fine_label_names": [b"a", b"b"]}}, r"train: .* must be below 2"),
        ({"train": {b"labels": [1]}}, "train: has no array of images"),
        ({"train": [1, 2]}, "train holds list"),
        ({"test": cifar_content("test") | {b"fine_labels": [0]}}, "has 6 images and 1 labels"),
        ({"test": cifar_content("test") | {b"fine_labels": None}}, "is it CIFAR-10"),
        (
            {"test": cifar_content("test") | {b"data": np.zeros((6, 9), np.uint8)}},
            "test: has no array of images",
        ),
        ({"test": cifar_content("test") | {b"data": np.zeros((6, 3072))}}, "a call of dtype"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        open_images(cifar100(tmp_path, **changes))


def test_a_missing_file_is_named(tmp_path):
    (cifar100(tmp_path) / "cifar-100-python" / "test").unlink()
    with refused("test: is missing", code="damaged_file"):
        open_images(tmp_path)


def test_equal_pixels_are_found(tmp_path):
    train, test = cifar_content("train"), cifar_content("test")
    train[b"data"][4] = train[b"data"][0]  # another class
    test[b"data"][3] = train[b"data"][5]  # the test part
    train[b"data"][9] = train[b"data"][8]  # the same class
    report = check_data(cifar100(tmp_path, train=train, test=test))
    assert [d.names for d in report.duplicates] == [("train/0", "train/4"), ("train/5", "test/3")]
    assert report.duplicates[0].classes == ("apple", "aquarium_fish")
    assert [d.across_classes for d in report.duplicates] == [True, False]
    assert [d.across_parts for d in report.duplicates] == [False, True]
    assert report.repeats == 1


def test_missing_classes_and_shots_are_counted(tmp_path):
    p = check_data(cifar100(tmp_path)).protocol
    assert (p.found["base classes"], p.found["novel classes"]) == ((3, 60), (0, 40))
    assert p.missing[:1] == ("bear",)
    assert len(p.missing) == 97
    assert len(p.missing_shots) == 200
    assert p.found["base train images"] == (12, 30_000)
    assert p.short["base train images"]["apple"] == 496
    assert sum(p.short["base train images"].values()) == 30_000 - 12


def test_the_real_set_is_whole(real_cifar100):
    report = check_data(real_cifar100)
    assert (report.classes, report.train, report.test) == (100, 50_000, 10_000)
    assert report.sizes == (((32, 32), 60_000),)
    assert report.ok
    assert report.complete
    images = open_images(real_cifar100)
    draw = published_draw(load_protocol("cifar100"), images)
    assert images.train.labels[draw.rows[7].numpy()].tolist() == [95 + i // 5 for i in range(25)]
