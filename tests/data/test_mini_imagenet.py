"""mini-ImageNet: lists with flat images, and class folders."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from cala.cli.data import report_lines
from cala.data.check import check_data
from cala.data.protocol import load_protocol
from cala.data.sets import open_images, recognise
from data.tiny_sets import WNIDS, mini_folders, mini_imagenet, published_draw, save
from refusals import refused


def test_images_are_kept_at_the_size_of_the_test_transform(tmp_path):
    images = open_images(mini_imagenet(tmp_path))
    (batch,) = images.train.batches(100)
    assert batch.shape == (12, 92, 92, 3)
    assert images.sizes == (((20, 24), 18),)
    with Image.open(tmp_path / "images" / images.train.names[3]) as image:
        expected = image.resize((92, 92), Image.Resampling.BILINEAR)
    assert np.array_equal(images.train.image(3), np.asarray(expected))


def test_labels_are_those_of_the_whole_set(tmp_path):
    images = open_images(mini_imagenet(tmp_path))
    assert images.classes == load_protocol("mini_imagenet").expected.classes
    assert list(images.classes) == sorted(images.classes)
    others = tmp_path / "others"
    for wnid in ("n00000002", "n00000001"):
        save(others / "images" / f"{wnid}.jpg", int(wnid[-1]))
    (others / "split").mkdir()
    for part in ("train", "test"):
        lines = "filename,label\nn00000002.jpg,n00000002\nn00000001.jpg,n00000001\n"
        (others / "split" / f"{part}.csv").write_text(lines)
    images = open_images(others)
    assert images.classes == ("n00000001", "n00000002")
    assert images.train.labels.tolist() == [1, 0]
    assert check_data(others).protocol.unknown == ("n00000001", "n00000002")


def test_class_folders(tmp_path):
    images = open_images(mini_folders(tmp_path / "both"))
    assert images.name == "mini_imagenet"
    assert (len(images.train), len(images.test)) == (12, 6)
    assert images.train.names[0] == f"train/{WNIDS[0]}/0.jpg"
    alone = open_images(mini_folders(tmp_path / "train only", ("train",)))
    assert (len(alone.train), len(alone.test)) == (12, 0)
    assert "there is no test/ folder" in alone.notes[-1]


def test_photos_in_folders_named_after_wnids_are_photos(tmp_path):
    few = mini_folders(tmp_path / "few", whole=False)
    assert recognise(few) == "folder"
    assert len(open_images(few).classes) == check_data(few).classes == 3
    plain = mini_folders(tmp_path / "plain") / "train"  # no test part: not the benchmark's layout
    assert recognise(plain) == "folder"
    assert len(open_images(plain, holdout=0.5).test) == 6
    said = open_images(few, "mini_imagenet")
    assert (said.name, len(said.train), len(said.classes)) == ("mini_imagenet", 12, 100)


def test_nearly_all_wnids_are_enough(tmp_path):
    root = mini_folders(tmp_path)
    empty = [p for p in sorted((root / "train").iterdir()) if not list(p.iterdir())]
    for path in empty[:5]:
        path.rmdir()
    assert recognise(root) == "mini_imagenet"
    empty[5].rmdir()
    assert recognise(root) == "folder"
    empty[5].mkdir()
    (root / "train" / "my cat").mkdir()
    assert recognise(root) == "folder"


def test_a_share_for_testing_is_for_photos(tmp_path):
    with refused("mini_imagenet", field="holdout") as caught:
        open_images(mini_imagenet(tmp_path), holdout=0.2)
    assert "--as folder" in caught.value.fix


def test_images_in_class_folders_below_images(tmp_path):
    mini_imagenet(tmp_path)
    for path in list((tmp_path / "images").iterdir()):
        place = path.parent / path.name[:9]
        place.mkdir(exist_ok=True)
        path.rename(place / path.name)
    assert len(open_images(tmp_path).train) == 12


@pytest.mark.parametrize(
    ("lines", "code", "named"),
    [
        ("", "no_column", ["filename, label"]),
        ("filename,wnid\na.jpg,n01532829\n", "no_column", ["label"]),
        ("filename,label\na.jpg,\n", "bad_value", ["line 2", "''", "'a.jpg'"]),
        ("filename,label\na.jpg\n", "bad_value", ["line 2", "None"]),
        ("filename,label\na.jpg,house\n", "bad_value", ["line 2", "'house'", "'a.jpg'"]),
        ("filename,label\n../../secret.jpg,n01532829\n", "outside", ["'../../secret.jpg'"]),
        ("filename,label\n/etc/passwd,n01532829\n", "outside", ["'/etc/passwd'"]),
        ("filename,label\n" + "a" * 200_000 + ",n01532829\n", "damaged_file", []),
    ],
)
def test_lists_that_cannot_be_used(tmp_path, lines, code, named):
    (mini_imagenet(tmp_path) / "split" / "train.csv").write_text(lines)
    with refused("split/train.csv", *named, code=code) as caught:
        open_images(tmp_path)
    assert caught.value.detail in check_data(tmp_path).error


def test_a_list_in_another_encoding_or_missing(tmp_path):
    mini_imagenet(tmp_path)
    (tmp_path / "split" / "test.csv").write_bytes(b"\xff\xfef\0i\0")
    with refused("test.csv", code="damaged_file"):
        open_images(tmp_path)
    (tmp_path / "split" / "test.csv").unlink()
    with refused("test.csv", code="missing_file"):
        open_images(tmp_path)


def test_a_listed_image_that_is_not_there(tmp_path):
    name = f"{WNIDS[1]}00000002.jpg"
    (mini_imagenet(tmp_path) / "images" / name).unlink()
    with refused("1 image ", name, code="bad_images"):
        open_images(tmp_path)
    images = open_images(tmp_path, on_bad="skip")
    assert np.bincount(images.train.labels).tolist() == [4, 3, 4]
    assert name not in images.train.names
    assert [bad.name for bad in images.skipped] == [name]
    report = check_data(tmp_path)
    assert not report.ok
    assert any(name in line for line in report_lines(report))


def test_names_with_commas_quotes_and_emoji(tmp_path):
    mini_imagenet(tmp_path)
    odd = 'a "b", 🐦\n.jpg'
    save(tmp_path / "images" / odd, 77)
    with (tmp_path / "split" / "train.csv").open("a", encoding="utf-8", newline="") as file:
        quoted = odd.replace('"', '""')
        file.write(f'"{quoted}",{WNIDS[2]}\n')
    images = open_images(tmp_path)
    assert images.train.names[-1] == odd
    assert images.train.labels[-1] == 2


def test_the_sample_lacks_exactly_what_it_lacks(mini_sample):
    report = check_data(mini_sample)
    assert (report.dataset, report.classes, report.train, report.test) == (
        "mini_imagenet",
        100,
        1_400,
        600,
    )
    assert report.ok
    assert not report.complete
    assert report.protocol.found == {
        "base classes": (60, 60),
        "base train images": (720, 30_000),
        "base test images": (360, 6_000),
        "novel classes": (40, 40),
        "novel train images": (680, 20_000),
        "novel test images": (240, 4_000),
        "published shots": (200, 200),
    }
    assert (report.protocol.missing, report.protocol.missing_shots) == ((), ())
    images = open_images(mini_sample)
    draw = published_draw(load_protocol("mini_imagenet"), images)
    assert images.train.names[draw.rows[0][0]] == "n0354414300000811.jpg"


def test_lists_without_an_image(tmp_path):
    mini_imagenet(tmp_path)
    for part in ("train", "test"):
        (tmp_path / "split" / f"{part}.csv").write_text("filename,label\n")
    with refused(code="no_images"):
        open_images(tmp_path)
