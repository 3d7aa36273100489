"""What is known about many image files after reading them once; remembered until they change."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cala.data.decoding import MAX_PIXELS, ImageError, Pixels, decode
from cala.data.parallel import in_order
from cala.data.watching import watched
from cala.errors import InputError
from cala.files import cache_folder, counted, sha256, stamp, write_text

FRESH = 2.0  # seconds: a file this young may change again within the same clock tick
MEMO_BYTES = 64 << 20  # of all memos together; those not used for the longest time go first
UNREADABLE = "unreadable"

Consume = Callable[[Pixels | None], None]


@dataclass(frozen=True)
class Survey:
    """One entry per file: its (h, w), and why it cannot be used (empty if it can)."""

    sizes: list[tuple[int, int]]
    faults: list[str]


def digests(paths: Sequence[Path]) -> list[str]:
    """SHA-256 of every file, `unreadable` where there is none."""

    def build() -> list[Any]:
        return list(watched("reading", in_order(_digest, paths), len(paths)))

    return remembered("digests", paths, build)


def survey(paths: Sequence[Path], max_pixels: int = MAX_PIXELS) -> Survey:
    """Decode every file once to learn which can be used."""

    def build() -> list[Any]:
        found = decode_all(paths, max_pixels=max_pixels)
        return [found.sizes, found.faults]

    sizes, faults = remembered(f"survey-{max_pixels}", paths, build)
    return Survey([(height, width) for height, width in sizes], faults)


def decode_all(
    paths: Sequence[Path],
    consume: Consume = lambda pixels: None,
    size: tuple[int, int] | None = None,
    max_pixels: int = MAX_PIXELS,
) -> Survey:
    """Hand the pixels of every file to `consume`, in order; None where there are none."""
    sizes, faults = [], []
    read = partial(_attempt, size=size, max_pixels=max_pixels)
    for pixels, found, fault in watched("decoding", in_order(read, paths), len(paths)):
        consume(pixels)
        sizes.append(found)
        faults.append(fault)
    return Survey(sizes, faults)


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


def fingerprint(name: str, entries: Sequence[tuple[str, int, str]]) -> str:
    """SHA-256 over (name, label, digest) of all images of a set."""
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


def name_faults(name: str, faulty: Sequence[tuple[str, str]]) -> InputError:
    """The error for images that cannot be used: how many, the first few, what to do."""
    first = "; ".join(f"{image} ({why})" for image, why in faulty[:3])
    more = f"; and {len(faulty) - 3} more" if len(faulty) > 3 else ""
    return InputError(
        f"{name}: {counted(len(faulty), 'image')} cannot be used: {first}{more}. "
        "Mend or remove them, or open the set with on_bad='skip'"
    )
