"""Atomic writes, checksums, printable names, ordered threads."""

from __future__ import annotations

import hashlib
import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cala.data.cache import cache_folder
from cala.data.image_scan import in_order
from cala.files import atomic, clear_leftovers, sha256, shown, write_text


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail():
        with atomic(path) as temporary:
            temporary.write_text("half")
            raise KeyError("stop")

    with pytest.raises(KeyError):
        fail()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    write_text(path, "new 🐦")
    assert path.read_text("utf-8") == "new 🐦"


def test_bytes_are_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    done = []
    sync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: done.append("sync") or sync(number))
    monkeypatch.setattr(os, "replace", lambda *paths: done.append("rename") or rename(*paths))
    write_text(tmp_path / "a.txt", "text")
    assert done == ["sync", "rename", "sync"]  # the bytes, the name, the folder that holds it


def test_leftovers_of_one_file_are_cleared(tmp_path):
    mine = tmp_path / ".a+.txt.0123456789abcdef.tmp"
    others = {".aa.txt.0123456789abcdef.tmp", ".a+.txt.tmp", ".a+.txt.xyz.tmp", "a+.txt"}
    for name in (mine.name, *others):
        (tmp_path / name).touch()
    clear_leftovers(tmp_path / "a+.txt")
    assert {path.name for path in tmp_path.iterdir()} == others


def test_checksums(tmp_path):
    path = tmp_path / "a"
    content = b"0123456789" * 300_000
    path.write_bytes(content)
    assert sha256(path) == hashlib.sha256(content).hexdigest()


@given(st.text())
def test_shown_is_one_printable_line(text):
    assert shown(text).isprintable()
    assert not text.isprintable() or shown(text) == text


def test_the_cache_is_where_it_is_told(cache, tmp_path, monkeypatch):
    assert cache_folder("a", "b") == cache / "a" / "b"
    monkeypatch.delenv("CALA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path in cache_folder().parents


def test_threads_keep_the_order_and_stay_bounded():
    started = []

    def work(item):
        started.append(item)
        time.sleep(0.002 * (item % 3))
        return item * 2

    results = in_order(work, range(50), ahead=8)
    assert [next(results) for _ in range(10)] == list(range(0, 20, 2))
    assert len(started) <= 18
    results.close()
    before = threading.active_count()
    assert list(in_order(work, range(30))) == list(range(0, 60, 2))
    assert threading.active_count() <= before


def test_an_error_in_a_thread_comes_out_at_its_place():
    def work(item):
        if item == 3:
            raise KeyError(item)
        return item

    results = in_order(work, range(9))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError):
        next(results)


def test_a_writer_that_makes_its_own_file_does_not_change_the_rights(tmp_path):
    target, usual = tmp_path / "a", tmp_path / "b"
    usual.touch()
    with atomic(target) as temporary:
        temporary.unlink()
        temporary.touch(0o600)
    assert target.stat().st_mode == usual.stat().st_mode
