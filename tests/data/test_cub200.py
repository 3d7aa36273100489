"""CUB-200-2011: the official lists, and lists that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from cala.cli.data import report_lines
from cala.data.check import check_data
from cala.data.protocol import load_protocol
from cala.data.sets import open_images
from data.tiny_sets import cub200, published_draw
from refusals import refused


def test_the_official_split_and_sizes(tmp_path):
    cub200(tmp_path)
    for place in (tmp_path, tmp_path / "CUB_200_2011"):
        images = open_images(place)
        assert images.name == "cub200"
        assert images.classes == ("001.Bird_0", "002.Bird_1", "003.Bird_2")
        assert images.train.names[0] == "001.Bird_0/Bird_train_0.jpg"
        assert images.test.labels.tolist() == [0, 0, 1, 1, 2, 2]
        assert isinstance(next(images.train.batches(3)), list)


NINES = "\n".join(f"{i} 9" for i in range(1, 19))


@pytest.mark.parametrize(
    ("name", "text", "code", "named"),
    [
        ("images.txt", "1 a.jpg\n1 b.jpg\n", "damaged_file", ["images.txt", "line 2", "number 1"]),
        ("images.txt", "one a.jpg\n", "damaged_file", ["images.txt", "line 1", "'one a.jpg'"]),
        ("images.txt", "1 ../../etc/passwd\n", "outside", ["images.txt", "../../etc/passwd"]),
        ("image_class_labels.txt", "1 1\n", "damaged_file", ["class_labels.txt", "image 2"]),
        ("train_test_split.txt", "1 1\n2 7\n", "damaged_file", ["test_split.txt", "image 2"]),
        ("image_class_labels.txt", NINES, "damaged_file", ["image 1 ", "class 9", "classes.txt"]),
        ("images.txt", "", "no_images", ["cub200"]),
    ],
)
def test_lists_that_do_not_fit(tmp_path, name, text, code, named):
    (cub200(tmp_path) / "CUB_200_2011" / name).write_text(text)
    with refused(*named, code=code):
        open_images(tmp_path)
    assert not check_data(tmp_path).ok


def test_a_missing_list_is_named(tmp_path):
    (cub200(tmp_path) / "CUB_200_2011" / "classes.txt").unlink()
    with refused("classes.txt", code="incomplete"):
        open_images(tmp_path)
    (tmp_path / "CUB_200_2011" / "images").rename(tmp_path / "images")
    with refused("classes.txt, images/", code="incomplete"):
        open_images(tmp_path)


def test_the_archive_must_be_unpacked(tmp_path):
    (tmp_path / "CUB_200_2011.tgz").write_bytes(b"packed")
    with refused("CUB_200_2011.tgz", code="bad_layout") as caught:
        open_images(tmp_path / "CUB_200_2011.tgz")
    assert "unpack" in caught.value.fix


def test_missing_and_broken_images(tmp_path):
    images = cub200(tmp_path) / "CUB_200_2011" / "images"
    (images / "001.Bird_0" / "Bird_train_1.jpg").unlink()
    with refused("Bird_train_1.jpg", code="bad_images"):
        open_images(tmp_path)
    broken = images / "003.Bird_2" / "Bird_test_0.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    report = check_data(tmp_path)
    assert [bad.name for bad in report.unreadable] == [
        "001.Bird_0/Bird_train_1.jpg",
        "003.Bird_2/Bird_test_0.jpg",
    ]
    assert (report.train, report.test) == (11, 5)
    opened = open_images(tmp_path, on_bad="skip")
    assert np.bincount(opened.test.labels).tolist() == [2, 2, 1]
    assert sum(len(batch) for batch in opened.test.batches(2)) == 5


def test_the_sample_lacks_exactly_what_it_lacks(cub200_sample):
    report = check_data(cub200_sample)
    assert (report.dataset, report.classes, report.train, report.test) == (
        "cub200",
        200,
        1_000,
        400,
    )
    assert report.ok
    assert not report.complete
    p = report.protocol
    assert p.found == {
        "base classes": (100, 100),
        "base train images": (500, 3_000),
        "base test images": (200, 2_864),
        "novel classes": (100, 100),
        "novel train images": (500, 2_994),
        "novel test images": (200, 2_930),
        "published shots": (500, 500),
    }
    assert p.missing_shots == ()
    assert p.short["base train images"]["100.Brown_Pelican"] == 25
    assert any("2,500 in 100 classes" in line for line in report_lines(report))
    draw = published_draw(load_protocol("cub200"), open_images(cub200_sample))
    assert [len(rows) for rows in draw.rows] == [50] * 10
