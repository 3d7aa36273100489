"""What holds for every registered image set."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from cala.cli.data import report_lines
from cala.data.check import check_data
from cala.data.sets import DATASETS, locate, open_images, recognise
from cala.errors import InputError
from data.tiny_sets import CLASSES, MAKERS, TEST, TRAIN
from refusals import refused

SETS = sorted(DATASETS)


@pytest.fixture(params=SETS)
def made(request, tmp_path):
    return request.param, MAKERS[request.param](tmp_path / "set")


def test_every_registered_set_is_tested():
    assert set(MAKERS) == set(DATASETS)


def test_opened_by_its_layout(made):
    name, root = made
    assert recognise(root) == name
    images = open_images(root)
    assert images.name == name
    assert len(images.classes) >= CLASSES
    assert (images.skipped, images.source.exists()) == ((), True)
    for split, count in ((images.train, TRAIN), (images.test, TEST)):
        assert len(split) == len(split.names) == len(set(split.names)) == CLASSES * count
        assert split.labels.dtype == np.int64
        assert np.bincount(split.labels).tolist() == [count] * CLASSES


def test_batches_keep_the_order(made):
    train = open_images(made[1]).train
    one_by_one = [train.image(row) for row in range(len(train))]
    for image in one_by_one:
        assert image.dtype == np.uint8
        assert image.ndim == 3
        assert image.shape[2] == 3
    batches = list(train.batches(5))
    assert [len(batch) for batch in batches] == [5, 5, 2]
    for image, again in zip(one_by_one, (i for b in batches for i in b), strict=True):
        assert np.array_equal(image, again)
    rows = [7, 0, 7, 3]
    some = [image for batch in train.batches(3, rows) for image in batch]
    assert all(np.array_equal(one_by_one[r], i) for r, i in zip(rows, some, strict=True))
    assert len({image.tobytes() for image in one_by_one}) == len(train)


def test_no_row_gives_no_batch(made):
    train = open_images(made[1]).train
    assert list(train.batches(3, [])) == []
    assert list(train.take([]).batches(3)) == []


def test_a_part_of_a_split(made):
    train = open_images(made[1]).train
    part = train.take(train.labels == 1)
    assert part.labels.tolist() == [1] * TRAIN
    row = int((train.labels == 1).nonzero()[0][2])
    assert part.names[2] == train.names[row]
    assert np.array_equal(part.image(2), train.image(row))
    assert list(train.take([]).batches(4)) == []


def test_rows_sizes_and_options_that_do_not_exist(made):
    name, root = made
    train = open_images(root).train
    with refused("row 99", field="rows"):
        train.image(99)
    with refused("row -1", field="rows"):
        train.batches(4, [-1])
    with refused(field="size"):
        train.batches(0)
    with refused(name, field="colour"):
        open_images(root, colour=True)
    with refused("'ignore'", field="on_bad", code="unknown_name"):
        open_images(root, on_bad="ignore")
    with refused("imagenet21k", code="unknown_name"):
        open_images(root, "imagenet21k")


def test_every_set_has_a_limit_of_pixels(made):
    name, root = made
    smallest = 1024 if name == "cifar100" else 480
    assert len(open_images(root, max_pixels=smallest).train) == CLASSES * TRAIN
    report = check_data(root, max_pixels=smallest - 1)
    assert not report.ok
    if name != "cifar100":
        assert len(report.unreadable) == CLASSES * (TRAIN + TEST)


def test_the_fingerprint_is_of_the_content(made, tmp_path):
    name, root = made
    first = open_images(root).fingerprint
    assert first == open_images(root).fingerprint
    copy = tmp_path / "elsewhere"
    shutil.copytree(root, copy)
    assert open_images(copy).fingerprint == first
    shutil.rmtree(copy)
    other = MAKERS[name](copy)
    victim = max((p for p in other.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(bytes(content))
    assert open_images(copy, on_bad="skip").fingerprint != first


def test_a_path_without_the_set_is_named(made, tmp_path):
    name, _ = made
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "file.jpg").write_bytes(b"hello")
    for path in (empty, tmp_path / "file.jpg"):
        with refused(name, code="bad_layout"):
            open_images(path, name)
        with refused(code="bad_layout"):
            open_images(path)
    for path in (tmp_path / "nothing", "nul\0byte"):
        with refused(str(path).replace("\0", r"\x00"), field="path", code="unreadable_file"):
            open_images(path, name)


def test_check_says_what_is_there(made):
    name, root = made
    report = check_data(root)
    assert (report.dataset, report.error, report.ok) == (name, "", True)
    assert (report.train, report.test) == (CLASSES * TRAIN, CLASSES * TEST)
    assert sum(count for _, count in report.sizes) == CLASSES * (TRAIN + TEST)
    assert (report.duplicates, report.repeats) == ((), 0)
    assert report.complete is (None if name == "folder" else False)
    again = json.loads(json.dumps(report.as_json()))
    assert again["ok"] is True
    lines = report_lines(report)
    assert "12 training and 6 test images" in lines[1]
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("damage", ["deleted", "empty", "cut", "garbage", "flipped", "a folder"])
def test_any_damaged_file_ends_in_a_report(made, damage):
    """Files one after the other are damaged and restored; nothing but InputError comes out."""
    name, root = made
    files = sorted(p for p in root.rglob("*") if p.is_file())
    lists = [p for p in files if p.suffix in (".txt", ".csv", "")]
    for victim in [*lists, files[-1]]:
        whole = victim.read_bytes()
        victim.unlink()
        if damage == "a folder":
            victim.mkdir()
        elif damage != "deleted":
            middle = len(whole) // 2
            flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
            content = {"empty": b"", "cut": whole[:middle], "garbage": b"\xff\xfe\x00" * 50}
            victim.write_bytes(content.get(damage, flipped))
        report = check_data(root, name)
        if damage in ("empty", "cut", "garbage"):
            assert not report.ok, victim
        lines = report_lines(report)
        assert all(line.isprintable() for line in lines)
        json.dumps(report.as_json())
        with suppress(InputError):
            open_images(root, name)
        if victim.is_dir():
            victim.rmdir()
        victim.write_bytes(whole)
    assert check_data(root, name).ok


def test_a_benchmark_is_found_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CALA_DATA", raising=False)
    with refused("cub200", field="data", code="not_found") as caught:
        locate("cub200")
    assert "CUB_200_2011" in caught.value.fix
    MAKERS["cub200"](tmp_path / "data" / "birds")
    assert locate("cub200") == (Path("data/birds"), "cub200")
    MAKERS["cub200"](tmp_path / "elsewhere" / "deep")
    monkeypatch.setenv("CALA_DATA", str(tmp_path / "elsewhere"))
    assert locate("cub200") == (tmp_path / "elsewhere" / "deep", "cub200")
    assert locate("cub200", Path("here"), "folder") == (Path("here"), "folder")
    monkeypatch.setenv("CALA_DATA", str(tmp_path / "nothing"))
    assert locate("cub200")[0] == Path("data/birds")


def test_other_names_are_paths():
    assert locate("photos") == (Path("photos"), None)
    assert locate("folder", Path("photos")) == (Path("photos"), "folder")
    assert locate("photos", kind="cub200") == (Path("photos"), "cub200")
    with refused(code="unknown_name"):
        locate("photos", kind="cub")
