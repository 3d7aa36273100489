"""The cache of decoded images: built once, found again, rebuilt when damaged."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from cala.data import image_scan as survey
from cala.data import listing
from cala.data.cache import cached
from cala.data.sets import open_images
from cala.errors import InputError
from data.refusals import refused
from data.tiny_sets import mini_imagenet, save
from waiting import GENEROUS, wait_for


class Builder:
    """Writes one array and counts how often."""

    def __init__(self, value=7):
        self.calls, self.value = 0, value

    def __call__(self, folder):
        self.calls += 1
        np.save(folder / "x.npy", np.full((50, 4), self.value, np.uint8))
        return {"value": self.value}


def entry_folder(cache):
    (folder,) = [p for p in (cache / "images").iterdir() if p.is_dir()]
    return folder


def test_built_once_and_found_again(cache):
    build = Builder()
    first, second = cached("tiny", "k" * 64, build), cached("tiny", "k" * 64, build)
    assert build.calls == 1
    assert second.info == {"value": 7}
    assert isinstance(second.arrays["x"], np.memmap)
    assert not second.arrays["x"].flags.writeable
    assert np.array_equal(first.arrays["x"], second.arrays["x"])
    cached("tiny", "other", build)
    assert build.calls == 2


@pytest.mark.parametrize(
    "damage", ["cut", "flipped", "array gone", "info gone", "info cut", "info odd", "version"]
)
def test_damage_is_noticed_and_mended(cache, damage):
    build = Builder()
    cached("tiny", "key", build)
    array, info = entry_folder(cache) / "x.npy", entry_folder(cache) / "info.json"
    raw = array.read_bytes()
    if damage == "cut":
        array.write_bytes(raw[:-20])
    elif damage == "flipped":
        array.write_bytes(raw[:-20] + b"\0" + raw[-19:])
    elif damage == "array gone":
        array.unlink()
    elif damage == "info gone":
        info.unlink()
    elif damage == "info cut":
        info.write_text(info.read_text()[:30])
    elif damage == "info odd":
        info.write_text("[1, 2]")
    else:
        info.write_text(info.read_text().replace('"version": 1', '"version": 0'))
    entry = cached("tiny", "key", build)
    assert build.calls == 2
    assert (entry.arrays["x"] == 7).all()
    assert cached("tiny", "key", build) is not None
    assert build.calls == 2


def test_a_touched_file_with_the_same_bytes_is_kept(cache):
    build = Builder()
    cached("tiny", "key", build)
    os.utime(entry_folder(cache) / "x.npy", (1, 1))
    cached("tiny", "key", build)
    assert build.calls == 1


def test_a_build_that_fails_leaves_nothing(cache):
    def fail(folder):
        Builder()(folder)
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        cached("tiny", "key", fail)
    assert [p.name for p in (cache / "images").iterdir() if p.is_dir()] == []
    killed = cache / "images" / "tiny-key.new"
    killed.mkdir()
    (killed / "half.npy").write_bytes(b"half")
    entry = cached("tiny", "key", Builder())
    assert list(entry.arrays) == ["x"]


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("in the way")
    monkeypatch.setenv("CALA_CACHE", str(file / "below"))
    with pytest.raises(InputError, match=r"cannot be made .* set CALA_CACHE to a folder"):
        cached("tiny", "key", Builder())

    def full(folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "full"))
    with pytest.raises(InputError, match=r"No space left on device.*free some space"):
        cached("tiny", "key", full)


def test_images_are_decoded_once(tmp_path, monkeypatch):
    calls = []
    real = listing.decode_all
    monkeypatch.setattr(listing, "decode_all", lambda *a: calls.append(1) or real(*a))
    root = mini_imagenet(tmp_path)
    first = open_images(root)
    assert np.array_equal(open_images(root).train.image(3), first.train.image(3))
    assert len(calls) == 1
    save(root / "images" / first.train.names[3], 999)
    changed = open_images(root)
    assert len(calls) == 2
    assert not np.array_equal(changed.train.image(3), first.train.image(3))


def test_a_damaged_cache_gives_the_same_images(tmp_path, cache):
    root = mini_imagenet(tmp_path)
    before = open_images(root).train.image(3)
    array = entry_folder(cache) / "images.npy"
    array.write_bytes(array.read_bytes()[:5000])
    assert np.array_equal(open_images(root).train.image(3), before)


CHILD = """
import sys, time
from cala.data import listing
from cala.data.sets import open_images
real = listing.decode_all
def slow(*arguments):
    with open(sys.argv[2], "a") as log:
        log.write("built\\n")
    time.sleep(0.5)
    return real(*arguments)
listing.decode_all = slow
images = open_images(sys.argv[1])
print(images.fingerprint, int(images.train.image(5).sum()))
"""


@pytest.mark.system
def test_two_processes_build_it_once(tmp_path):
    root, log = mini_imagenet(tmp_path / "set"), tmp_path / "log"
    command = [sys.executable, "-c", CHILD, str(root), str(log)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = {child.communicate(timeout=GENEROUS)[0] for child in children}
    assert [child.returncode for child in children] == [0, 0]
    assert len(said) == 1
    assert log.read_text() == "built\n"


@pytest.mark.system
def test_a_killed_build_is_taken_up_by_the_next(tmp_path):
    root, log = mini_imagenet(tmp_path / "set"), tmp_path / "log"
    command = [sys.executable, "-c", CHILD, str(root), str(log)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    wait_for(lambda: log.exists() or child.poll() is not None)
    child.kill()
    child.wait()
    assert len(open_images(root).train) == 12


def test_memos_are_used_only_while_the_files_stay(tmp_path, cache, monkeypatch):
    path = tmp_path / "a.png"
    save(path, 1)
    first = survey.digests([path])
    assert list((cache / "memos").iterdir()) == []  # too young to be trusted
    os.utime(path, (1, 1))
    later = path.stat().st_ctime + 60
    monkeypatch.setattr(survey.time, "time", lambda: later)
    assert survey.digests([path]) == first
    (memo,) = (cache / "memos").iterdir()
    memo.write_text(memo.read_text().replace(first[0], "remembered"))
    assert survey.digests([path]) == ["remembered"]
    memo.write_text("{cut")
    assert survey.digests([path]) == first
    save(path, 2)
    assert survey.digests([path]) != first


def test_memos_do_not_grow_for_ever(tmp_path, cache, monkeypatch):
    path = save(tmp_path / "a.png", 1)
    later = path.stat().st_ctime + 3600
    monkeypatch.setattr(survey.time, "time", lambda: later)
    survey.digests([path])
    (first,) = (cache / "memos").iterdir()
    monkeypatch.setattr(survey, "MEMO_BYTES", 4 * first.stat().st_size)
    for age in range(1, 10):
        os.utime(path, (age, age))
        survey.digests([path])
        for memo in (cache / "memos").iterdir():
            old = memo.stat().st_mtime - 10
            os.utime(memo, (old, old))
    left = list((cache / "memos").iterdir())
    assert 1 <= len(left) <= 4
    assert first not in left
    monkeypatch.setattr(survey, "MEMO_BYTES", 1)
    os.utime(path, (99, 99))
    before = survey.digests([path])
    (newest,) = (cache / "memos").iterdir()
    newest.write_text(newest.read_text().replace(before[0], "remembered"))
    assert survey.digests([path]) == ["remembered"], "the newest always stays"


def test_a_changed_set_leaves_no_old_images_behind(tmp_path, cache):
    one, other = mini_imagenet(tmp_path / "one"), mini_imagenet(tmp_path / "other")
    first = open_images(one)
    save(other / "images" / first.train.names[0], 55)
    open_images(other)
    entries = {p.name for p in (cache / "images").iterdir() if p.is_dir()}
    assert len(entries) == 2
    pixels = first.train.image(2)
    save(one / "images" / first.train.names[3], 999)
    open_images(one)
    now = {p.name for p in (cache / "images").iterdir() if p.is_dir()}
    assert len(now) == 2
    assert len(now & entries) == 1, "the other set keeps its own"
    assert np.array_equal(first.train.image(2), pixels), "an open set can still be read"
    open_images(one, max_pixels=480)
    assert len([p for p in (cache / "images").iterdir() if p.is_dir()]) == 3


@pytest.mark.parametrize("value", [0, -1, 2.5, "many", True])
def test_pixel_limits_that_are_none(tmp_path, value):
    with refused(field="max_pixels"):
        open_images(mini_imagenet(tmp_path), max_pixels=value)
