"""Digests and decodability of many image files, remembered until the files change."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cala.data.cache import remembered
from cala.data.decoding import CHANGED, MAX_PIXELS, ImageError, Pixels, Size, decode
from cala.data.formats import FORMATS
from cala.data.progress import track
from cala.files import sha256

UNREADABLE = "unreadable"
_WORKERS: list[int] = []  # if a number was asked for

A = TypeVar("A")
B = TypeVar("B")
Consume = Callable[[Pixels | None], None]


@dataclass(frozen=True)
class ImageScan:
    """For each file, its [h, w] and why it cannot be used (empty if it can)."""

    sizes: list[list[int]]
    faults: list[str]


def digests(paths: Sequence[Path]) -> list[str]:
    """Return the SHA-256 of every file, `unreadable` if it cannot be read."""
    found = track("reading", in_order(_digest, paths), len(paths))
    return remembered("digests", paths, lambda: list(found))


def scan(paths: Sequence[Path], max_pixels: int = MAX_PIXELS) -> ImageScan:
    """Decode every file once to find out which can be used."""

    def build() -> list[Any]:
        return list(astuple(decode_all(paths, max_pixels=max_pixels)))

    readable = "-".join(FORMATS)  # another version may read more of them
    return ImageScan(*remembered(f"survey-{max_pixels}-{readable}", paths, build))


def decode_all(
    paths: Sequence[Path],
    consume: Consume = lambda pixels: None,
    size: Size | None = None,
    max_pixels: int = MAX_PIXELS,
    expected: Sequence[str] | None = None,
) -> ImageScan:
    """Pass the pixels of every file to `consume`, in order; None for files that cannot be used.

    expected : digests of the files; raises if one has changed since
    """
    sizes, faults = [], []
    files = zip(paths, expected or [UNREADABLE] * len(paths), strict=True)
    read = partial(_attempt, size=size, max_pixels=max_pixels)
    for pixels, found, fault in track("decoding", in_order(read, files), len(paths)):
        consume(pixels)
        sizes.append(list(found))
        faults.append(fault)
    return ImageScan(sizes, faults)


def set_fingerprint(name: str, entries: Sequence[tuple[str, int, str]]) -> str:
    """Return the SHA-256 over (name, label, digest) of all images of a set."""
    whole = hashlib.sha256(name.encode())
    for entry in entries:
        whole.update(json.dumps(entry).encode())
    return whole.hexdigest()


def _digest(path: Path) -> str:
    try:
        return sha256(path) if path.is_file() else UNREADABLE
    except OSError:
        return UNREADABLE


def _attempt(
    file: tuple[Path, str], size: Size | None, max_pixels: int
) -> tuple[Pixels | None, Size, str]:
    path, digest = file
    try:
        pixels, found = decode(path, size, max_pixels, digest if digest != UNREADABLE else None)
    except ImageError as error:
        if error.code == CHANGED:
            raise
        return None, (0, 0), error.why
    return pixels, found, ""


def worker_count() -> int:
    """Threads that work on images: as many as processors that this process may use, at most 16."""
    if _WORKERS:
        return _WORKERS[-1]
    usable = getattr(os, "sched_getaffinity", lambda process: range(os.cpu_count() or 1))
    return min(16, len(usable(0)))


def use_workers(count: int) -> None:
    """Set `worker_count` for this process, and how many threads torch uses."""
    _WORKERS[:] = [count]
    os.environ["OMP_NUM_THREADS"] = str(count)  # for a torch that is imported later
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


def in_order(
    work: Callable[[A], B], items: Iterable[A], ahead: int | None = None
) -> Generator[B, None, None]:
    """`map(work, items)` in threads; at most `ahead` results wait in memory.

    By default that is a few per thread, since a single photo may take hundreds of megabytes.

    >>> list(in_order(abs, [-3, 2, -1]))
    [3, 2, 1]
    """
    threads = worker_count()  # decoding and encoding release the interpreter lock
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
