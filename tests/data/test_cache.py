"""The cache of decoded images: built once, found again, rebuilt when damaged."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from cala import storage
from cala.data import cache as data_cache
from cala.data import image_scan, listing
from cala.data.cache import cached
from cala.data.sets import open_images
from cala.errors import InputError
from data.tiny_sets import mini_imagenet, save
from refusals import refused, warned
from waiting import GENEROUS, wait_for

HERE = Path("here")


class Builder:
    """Writes one array and counts how often."""

    def __init__(self, value=7):
        self.calls, self.value = 0, value

    def __call__(self, folder):
        self.calls += 1
        return {"value": self.value}, {"x": np.full((50, 4), self.value, np.uint8)}


def entries(cache):
    return sorted((cache / "images").glob("*.safetensors"))


def entry_file(cache):
    (path,) = entries(cache)
    return path


def database(cache):
    return closing(sqlite3.connect(cache / "cache.sqlite", isolation_level=None))


def memos(cache):
    with database(cache) as found:
        return found.execute("SELECT key, row FROM memos ORDER BY used").fetchall()


def test_built_once_and_found_again(cache):
    build = Builder()
    first, second = cached("tiny", "k" * 64, build, HERE), cached("tiny", "k" * 64, build, HERE)
    assert build.calls == 1
    assert second.info == {"value": 7}
    assert isinstance(second.arrays["x"], np.memmap)
    assert not second.arrays["x"].flags.writeable
    assert np.array_equal(first.arrays["x"], second.arrays["x"])
    cached("tiny", "other", build, HERE)
    assert build.calls == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone", "header", "other kind", "version"])
def test_damage_is_noticed_and_mended(cache, damage):
    build = Builder()
    cached("tiny", "key", build, HERE)
    path = entry_file(cache)
    raw = path.read_bytes()
    if damage == "cut":
        path.write_bytes(raw[:-20])
    elif damage == "flipped":
        path.write_bytes(raw[:-20] + b"\0" + raw[-19:])
    elif damage == "gone":
        path.unlink()
    elif damage == "header":
        path.write_bytes(raw.replace(b"value", b"volue"))
    elif damage == "other kind":
        storage.write(path, "session", {}, {})
    else:
        path.write_bytes(raw.replace(b'\\"version\\": 2', b'\\"version\\": 9'))
        assert path.read_bytes() != raw
    entry = cached("tiny", "key", build, HERE)
    assert build.calls == 2
    assert (entry.arrays["x"] == 7).all()
    assert cached("tiny", "key", build, HERE) is not None
    assert build.calls == 2


def test_a_touched_file_with_the_same_bytes_is_kept(cache):
    build = Builder()
    cached("tiny", "key", build, HERE)
    os.utime(entry_file(cache), (1, 1))
    cached("tiny", "key", build, HERE)
    assert build.calls == 1


def test_a_build_that_fails_leaves_nothing(cache):
    def fail(folder):
        Builder()(folder)
        raise InputError("no", code="of_this_test")

    with refused(code="of_this_test"):
        cached("tiny", "key", fail, HERE)
    assert {p.suffix for p in (cache / "images").iterdir()} <= {".lock"}
    killed = next((cache / "images").iterdir()).with_suffix(".new")
    killed.mkdir()
    (killed / "half").write_bytes(b"half")
    entry = cached("tiny", "key", Builder(), HERE)
    assert list(entry.arrays) == ["x"]
    assert not killed.exists()


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("in the way")
    monkeypatch.setenv("CALA_CACHE", str(file / "below"))
    with pytest.raises(InputError) as caught:
        cached("tiny", "key", Builder(), HERE)
    assert caught.value.code == "not_written"
    assert "CALA_CACHE" in caught.value.fix

    def full(folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "full"))
    with refused("No space left", code="not_written"):
        cached("tiny", "key", full, HERE)


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
    path = entry_file(cache)
    path.write_bytes(path.read_bytes()[:5000])
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


def aged(path, monkeypatch):
    """From now on the file is old enough to be trusted."""
    later = path.stat().st_ctime + 3600
    monkeypatch.setattr(data_cache.time, "time", lambda: later)


def test_memos_are_used_only_while_the_files_stay(tmp_path, cache, monkeypatch):
    path = tmp_path / "a.png"
    save(path, 1)
    first = image_scan.digests([path])
    assert memos(cache) == []  # too young to be trusted
    aged(path, monkeypatch)
    assert image_scan.digests([path]) == first
    assert len(memos(cache)) == 1
    monkeypatch.setattr(image_scan, "_digest", lambda path: "read again")
    assert image_scan.digests([path]) == first
    save(path, 2)
    assert image_scan.digests([path]) == ["read again"]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE memos SET row = CAST(REPLACE(CAST(row AS TEXT), 'a', 'b') AS BLOB)",
        "UPDATE memos SET row = (SELECT row FROM memos ORDER BY rowid DESC LIMIT 1), "
        "seal = (SELECT seal FROM memos ORDER BY rowid DESC LIMIT 1)",
        "UPDATE memos SET seal = x'00'",
        "UPDATE memos SET row = 5",
    ],
)
def test_a_memo_with_a_wrong_byte_is_made_again(tmp_path, cache, monkeypatch, change):
    paths = [save(tmp_path / f"{name}.png", place) for place, name in enumerate("ab")]
    aged(paths[1], monkeypatch)
    right = [image_scan.digests([path]) for path in paths]
    assert len(memos(cache)) == 2
    with database(cache) as found:
        found.execute(change)
    assert [image_scan.digests([path]) for path in paths] == right
    assert [image_scan.digests([path]) for path in paths] == right


@pytest.mark.parametrize("code", [4874, 13, 14, 266])  # shared memory, full, no handle, a read
def test_a_disk_that_fails_does_not_cost_the_cache(cache, monkeypatch, code):
    rows, key = data_cache.RowCache("embeddings"), bytes(32)
    rows.put([(key, b"row")])

    def failing(path, work):
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = code
        raise error

    working = data_cache._connected
    monkeypatch.setattr(data_cache, "_connected", failing)
    with warned("no_cache"):
        assert rows.get([key]) == {}
    monkeypatch.setattr(data_cache, "_connected", working)
    assert rows.get([key]) == {key: b"row"}


def test_memos_do_not_grow_for_ever(tmp_path, cache, monkeypatch):
    path = save(tmp_path / "a.png", 1)
    now = path.stat().st_ctime + 3600
    monkeypatch.setattr(data_cache.time, "time", lambda: now)
    image_scan.digests([path])
    ((first, row),) = memos(cache)
    monkeypatch.setattr(data_cache, "MEMO_BYTES", 4 * len(row))
    for age in range(1, 10):
        now += 10
        os.utime(path, (age, age))
        image_scan.digests([path])
    left = [key for key, _ in memos(cache)]
    assert len(left) == 4
    assert first not in left
    other = save(tmp_path / "b.png", 2)
    image_scan.digests([other])
    kept = memos(cache)[-1][0]
    for age in range(10, 16):
        now += 10
        image_scan.digests([other])  # used, so it is not the next to go
        os.utime(path, (age, age))
        image_scan.digests([path])
    assert kept in [key for key, _ in memos(cache)]
    monkeypatch.setattr(data_cache, "MEMO_BYTES", 1)
    now += 10
    os.utime(path, (99, 99))
    image_scan.digests([path])
    assert len(memos(cache)) == 1, "the newest always stays"


WRITER = """
import hashlib, sys, warnings
from cala.data.cache import RowCache
warnings.simplefilter("error")
rows, own = RowCache("embeddings"), int(sys.argv[1])
key = lambda n: hashlib.sha256(str(n).encode()).digest()
for start in range(200 * own, 200 * own + 200, 10):
    numbers = range(start, start + 10)
    rows.put([(key(n), str(n).encode()) for n in numbers])
    assert rows.get([key(n) for n in numbers]) == {key(n): str(n).encode() for n in numbers}
    print(start, flush=True)
"""


@pytest.mark.system
@pytest.mark.parametrize("kill", [False, True])
def test_many_processes_write_at_once_and_nothing_is_lost(cache, kill):
    """Also where the database does not exist yet, and where writers are killed."""
    commands = [[sys.executable, "-c", WRITER, str(number)] for number in range(6)]
    writers = [subprocess.Popen(c, stdout=subprocess.PIPE, text=True) for c in commands]
    said = []
    for writer in writers[1::2] if kill else ():
        said.append(writer.stdout.readline())
        writer.kill()
    said += [word for w in writers for word in w.communicate(timeout=GENEROUS)[0].split()]
    assert all(w.returncode == 0 or (kill and w.returncode == -9) for w in writers)
    starts = [int(start) for start in said]
    assert len(starts) >= (63 if kill else 120)
    numbers = [n for start in starts for n in range(start, start + 10)]
    keys = [hashlib.sha256(str(n).encode()).digest() for n in numbers]
    found = data_cache.RowCache("embeddings").get(keys)
    assert [found[key] for key in keys] == [str(n).encode() for n in numbers]


def test_a_changed_set_leaves_no_old_images_behind(tmp_path, cache):
    one, other = mini_imagenet(tmp_path / "one"), mini_imagenet(tmp_path / "other")
    first = open_images(one)
    save(other / "images" / first.train.names[0], 55)
    open_images(other)
    before = set(entries(cache))
    assert len(before) == 2
    pixels = first.train.image(2)
    save(one / "images" / first.train.names[3], 999)
    open_images(one)
    now = set(entries(cache))
    assert len(now) == 2
    assert now == before, "each place has one entry"
    assert np.array_equal(first.train.image(2), pixels), "an open set can still be read"
    open_images(one, max_pixels=480)
    assert len(entries(cache)) == 3


@pytest.mark.parametrize("value", [0, -1, 2.5, "many", True])
def test_pixel_limits_that_are_none(tmp_path, value):
    with refused(field="max_pixels"):
        open_images(mini_imagenet(tmp_path), max_pixels=value)
