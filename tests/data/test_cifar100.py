"""CIFAR-100: packed and unpacked, damaged and hostile."""

from __future__ import annotations

import numpy as np
import pytest

from cala.data.check import check_data
from cala.data.protocol import load_protocol
from cala.data.sets import open_images
from data.tiny_sets import cifar100, cifar_archive, cifar_content, picture, published_draw
from refusals import refused


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


TEST = cifar_content("test")


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ({"meta": {b"label_names": [b"a"]}}, "damaged_file", ["meta", "fine_label_names"]),
        ({"meta": {b"fine_label_names": [b"a", b"b"]}}, "damaged_file", ["train", "below 2"]),
        ({"train": {b"labels": [1]}}, "damaged_file", ["train", "images"]),
        ({"train": [1, 2]}, "damaged_file", ["train", "list"]),
        ({"test": TEST | {b"fine_labels": [0]}}, "damaged_file", ["test", "6 images", "1 labels"]),
        ({"test": TEST | {b"fine_labels": None}}, "damaged_file", ["test", "fine_labels"]),
        ({"test": TEST | {b"data": np.zeros((6, 9), np.uint8)}}, "damaged_file", ["test", "3072"]),
        ({"test": TEST | {b"data": np.zeros((6, 3072))}}, "refused", ["test", "dtype"]),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, changes, code, named):
    with refused(*named, code=code):
        open_images(cifar100(tmp_path, **changes))


def test_a_missing_file_is_named(tmp_path):
    (cifar100(tmp_path) / "cifar-100-python" / "test").unlink()
    with refused("cifar-100-python", "(test: ", code="damaged_file"):
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
