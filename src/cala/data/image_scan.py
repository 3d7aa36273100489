"""Digests and decodability of many image files, remembered until the files change."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cala.data.decoding import MAX_PIXELS, ImageError, Pixels, decode
from cala.data.progress import track
from cala.errors import InputError
from cala.files import cache_folder, sha256, stamp, write_text

FRESH = 2.0  # seconds: a file this young may change again within the same clock tick
MEMO_BYTES = 64 << 20  # of all memos together; those not used for the longest time go first
UNREADABLE = "unreadable"

A = TypeVar("A")
B = TypeVar("B")
Consume = Callable[[Pixels | None], None]


@dataclass(frozen=True)
class ImageScan:
    """For each file, its (h, w) and why it cannot be used (empty if it can)."""

    sizes: list[tuple[int, int]]
    faults: list[str]


def digests(paths: Sequence[Path]) -> list[str]:
    """Return the SHA-256 of every file, `unreadable` if it cannot be read."""

    def build() -> list[Any]:
        return list(track("reading", in_order(_digest, paths), len(paths)))

    return remembered("digests", paths, build)


def scan(paths: Sequence[Path], max_pixels: int = MAX_PIXELS) -> ImageScan:
    """Decode every file once to find out which can be used."""

    def build() -> list[Any]:
        found = decode_all(paths, max_pixels=max_pixels)
        return [found.sizes, found.faults]

    sizes, faults = remembered(f"survey-{max_pixels}", paths, build)
    return ImageScan([(height, width) for height, width in sizes], faults)


def decode_all(
    paths: Sequence[Path],
    consume: Consume = lambda pixels: None,
    size: tuple[int, int] | None = None,
    max_pixels: int = MAX_PIXELS,
) -> ImageScan:
    """Pass the pixels of every file to `consume`, in order; None for files that cannot be used."""
    sizes, faults = [], []
    read = partial(_attempt, size=size, max_pixels=max_pixels)
    for pixels, found, fault in track("decoding", in_order(read, paths), len(paths)):
        consume(pixels)
        sizes.append(found)
        faults.append(fault)
    return ImageScan(sizes, faults)


def remembered(kind: str, paths: Sequence[Path], build: Callable[[], list[Any]]) -> list[Any]:
    """`build()`, or what it gave last time if no file has changed since."""
    key, youngest = _stamps(paths)
    try:
        memo = cache_folder("memos") / f"{kind}-{key}.json"
    except InputError:
        return build()  # without a cache it is only slower
    try:
        found = json.loads(memo.read_text("utf-8"))
        if found["kind"] == kind and isinstance(found["result"], list):
            with suppress(OSError):
                os.utime(memo)  # used: not among those that are cleared away first
            return found["result"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not there, or damaged: the files themselves are the truth
    result = build()
    if time.time() - youngest > FRESH and _stamps(paths)[0] == key:
        with suppress(OSError):  # a full disk costs time, not the result
            write_text(memo, json.dumps({"kind": kind, "result": result}))
            _clear_memos(memo)
    return result


def _clear_memos(newest: Path) -> None:
    """Files that change leave their old memos behind: without an end to it the folder grows."""
    entries = []
    for path in newest.parent.iterdir():
        with suppress(OSError):  # another process may have cleared it away
            status = path.stat()
            entries.append((path != newest, -status.st_mtime_ns, status.st_size, path))
    total = 0
    for other, _, size, path in sorted(entries):
        total += size
        if other and total > MEMO_BYTES:
            with suppress(OSError):
                path.unlink()


def set_fingerprint(name: str, entries: Sequence[tuple[str, int, str]]) -> str:
    """Return the SHA-256 over (name, label, digest) of all images of a set."""
    whole = hashlib.sha256(name.encode())
    for entry in entries:
        whole.update(json.dumps(entry).encode())
    return whole.hexdigest()


def _stamps(paths: Sequence[Path]) -> tuple[str, float]:
    whole, youngest = hashlib.sha256(), 0
    for path in paths:
        try:
            found = stamp(path)
        except OSError:
            found = []
        youngest = max([youngest, *found[1:]])
        whole.update(json.dumps([os.path.abspath(path), found]).encode())
    return whole.hexdigest()[:32], youngest / 1e9


def _digest(path: Path) -> str:
    try:
        return sha256(path) if path.is_file() else UNREADABLE
    except OSError:
        return UNREADABLE


def _attempt(
    path: Path, size: tuple[int, int] | None, max_pixels: int
) -> tuple[Pixels | None, tuple[int, int], str]:
    try:
        pixels, found = decode(path, size, max_pixels)
    except ImageError as error:
        return None, (0, 0), error.why
    return pixels, found, ""


def in_order(work: Callable[[A], B], items: Iterable[A], ahead: int | None = None) -> Iterator[B]:
    """`map(work, items)` in threads; at most `ahead` results wait in memory.

    By default that is a few per thread, since a single photo may take hundreds of megabytes.

    >>> list(in_order(abs, [-3, 2, -1]))
    [3, 2, 1]
    """
    threads = min(16, os.cpu_count() or 1)  # decoding releases the interpreter lock
    limit = 2 * threads + 2 if ahead is None else ahead
    pool = ThreadPoolExecutor(threads)
    waiting: deque[Future[B]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= limit:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
