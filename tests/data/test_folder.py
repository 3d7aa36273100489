"""Your own photos in folders."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cala.cli.data import report_lines
from cala.data.check import check_data
from cala.data.folder import _hold_out
from cala.data.sets import open_images
from data.tiny_sets import folder, plain_folder, save
from refusals import refused


def test_without_parts_all_is_training(tmp_path):
    images = open_images(plain_folder(tmp_path))
    assert (len(images.train), len(images.test)) == (30, 0)
    assert images.classes == ("class 0", "class 1", "class 2")
    assert images.train.names[0] == "class 0/0.png"


def test_a_share_is_held_out_of_every_class(tmp_path):
    plain_folder(tmp_path)
    first, again, other = (
        open_images(tmp_path, holdout=0.2, seed=seed).test.names for seed in (0, 0, 1)
    )
    assert first == again != other
    images = open_images(tmp_path, holdout=0.2)
    assert np.bincount(images.test.labels).tolist() == [2, 2, 2]
    assert not set(images.train.names) & set(images.test.names)
    assert len(images.train) == 24


@given(st.integers(1, 40), st.floats(0.01, 0.99), st.integers(0, 5))
def test_both_parts_keep_something(tmp_path_factory, count, share, seed):
    images = [tmp_path_factory.getbasetemp() / f"{i}.jpg" for i in range(count)]
    train, test = _hold_out(images, "a", share, seed)
    assert sorted(train + test) == sorted(images)
    assert len(train) >= 1
    assert len(test) >= min(1, count - 1)


def test_adding_an_image_hardly_moves_the_others(tmp_path):
    images = [tmp_path / f"{i}.jpg" for i in range(100)]
    before = set(_hold_out(images, "a", 0.2, 0)[1])
    after = set(_hold_out([*images, tmp_path / "new.jpg"], "a", 0.2, 0)[1])
    assert len(before & after) >= 19


@pytest.mark.parametrize("holdout", [0, 1, -0.5, 7, float("nan"), "half"])
def test_shares_that_make_no_sense(tmp_path, holdout):
    with refused(field="holdout"):
        open_images(plain_folder(tmp_path), holdout=holdout)


def test_a_share_beside_a_test_folder(tmp_path):
    with refused("test/", field="holdout"):
        open_images(folder(tmp_path), holdout=0.2)


def test_extensions_of_any_case_and_other_files(tmp_path):
    for number, suffix in enumerate((".JPG", ".Jpeg", ".PNG", ".WebP", ".bmp", ".GIF", ".TIFF")):
        save(tmp_path / "birds" / f"{number}{suffix}", number)
    (tmp_path / "birds" / "notes.txt").write_text("hello")
    (tmp_path / "birds" / "photo.dat").write_text("hello")
    (tmp_path / "birds" / "._0.jpg").write_text("left by another system")
    (tmp_path / ".git").mkdir()
    (tmp_path / "empty").mkdir()
    images = open_images(tmp_path)
    assert len(images.train) == 7
    assert images.classes == ("birds",)
    assert images.notes[0] == "empty: no image in this folder"
    assert [(one.path.name, one.why) for one in images.left_out] == [
        ("notes.txt", "other"),
        ("photo.dat", "other"),
    ]


def test_a_class_may_be_called_train(tmp_path):
    save(tmp_path / "train" / "0.png", 0)
    save(tmp_path / "ship" / "0.png", 1)
    assert open_images(tmp_path).classes == ("ship", "train")


def test_folders_beside_train_and_test_are_told(tmp_path):
    folder(tmp_path)
    save(tmp_path / "val" / "class 0" / "0.png", 5)
    assert open_images(tmp_path).notes == ("beside train/ and test/, ignored: val",)


def test_classes_of_the_test_part_alone_count(tmp_path):
    folder(tmp_path)
    save(tmp_path / "test" / "another" / "0.png", 5)
    images = open_images(tmp_path)
    assert images.classes == ("another", "class 0", "class 1", "class 2")
    assert images.train.labels.min() == 1


def test_images_one_level_too_deep(tmp_path):
    save(tmp_path / "pets" / "cats" / "young" / "0.png", 0)
    with refused(code="no_images"):
        open_images(tmp_path)


def test_odd_names(tmp_path):
    names = ["with space.jpg", "emoji 🐦.jpg", "two\nlines.jpg", "'quote\".jpg", "%s {x}.jpg"]
    for number, name in enumerate(names):
        save(tmp_path / "odd\tclass" / name, number)
    if os.name == "posix":
        raw = os.fsencode(tmp_path / "odd\tclass") + b"/\xff\xfe.jpg"
        with open(raw, "wb") as file:
            file.write((tmp_path / "odd\tclass" / names[0]).read_bytes()[:-30])
    report = check_data(tmp_path)
    assert report.train == 5
    assert report.unreadable[0].name == r"odd\tclass/\udcff\udcfe.jpg"
    assert all(line.isprintable() for line in report_lines(report))
    with refused(r"\udcff", code="bad_image"):
        list(open_images(tmp_path).train.batches(4))


def test_links_that_lead_nowhere_or_in_circles(tmp_path):
    plain_folder(tmp_path, 2)
    (tmp_path / "class 0" / "loop.jpg").symlink_to(tmp_path / "class 0" / "loop.jpg")
    (tmp_path / "class 0" / "gone.jpg").symlink_to(tmp_path / "nothing.jpg")
    (tmp_path / "class 1" / "up").symlink_to(tmp_path)
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    report = check_data(tmp_path)
    assert [bad.name for bad in report.unreadable] == ["class 0/gone.jpg", "class 0/loop.jpg"]
    assert report.train == 6
    with refused("2 images", code="bad_images"):
        open_images(tmp_path)


def test_a_broken_image_names_itself_when_it_is_read(tmp_path):
    broken = plain_folder(tmp_path, 3) / "class 1" / "1.png"
    broken.write_bytes(broken.read_bytes()[:100])
    train = open_images(tmp_path).train
    with refused("class 1/1.png", code="bad_image"):
        list(train.batches(4))
    assert train.image(0).shape == (20, 24, 3)
    assert len(open_images(tmp_path, on_bad="skip").train) == 8


def test_the_pixel_limit_can_be_set(tmp_path):
    plain_folder(tmp_path, 2)
    assert len(open_images(tmp_path, max_pixels=480).train) == 6
    report = check_data(tmp_path, max_pixels=479)
    assert len(report.unreadable) == 6
    assert "more than the limit of 479" in report.unreadable[0].why


def test_copies_across_classes_and_parts(tmp_path):
    folder(tmp_path)
    copies = [
        ("train/class 0/0.png", "train/class 1/copy.png"),
        ("train/class 2/1.png", "test/class 2/copy.png"),
        ("train/class 1/2.png", "train/class 1/again.png"),
    ]
    for source, target in copies:
        shutil.copy(tmp_path / source, tmp_path / target)
    report = check_data(tmp_path)
    assert [d.names for d in report.duplicates] == [copies[0], copies[1]]
    assert report.repeats == 1
    assert report.ok
    assert any("1 across classes, 1 across train and test" in s for s in report_lines(report))


def test_a_folder_that_may_not_be_read(tmp_path, monkeypatch):
    plain_folder(tmp_path)

    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("cala.data.folder.class_images", refuse)
    report = check_data(tmp_path)
    assert "cannot be read as folder (Permission denied)" in report.error
