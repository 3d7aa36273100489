"""What is known about many image files after reading them once; remembered until they change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cala.data.cache import remembered
from cala.data.decoding import MAX_PIXELS, ChangedImage, ImageError, Pixels, decode
from cala.data.parallel import in_order
from cala.data.watching import watched
from cala.errors import InputError
from cala.files import counted, sha256

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
    expected: Sequence[str | None] | None = None,
) -> Survey:
    """Hand the pixels of every file to `consume`, in order; None where there are none.

    expected : the SHA-256 of every file; one that has changed since raises `ChangedImage`
    """
    sizes, faults = [], []
    files = zip(paths, expected or [None] * len(paths), strict=True)
    read = partial(_attempt, size=size, max_pixels=max_pixels)
    for pixels, found, fault in watched("decoding", in_order(read, files), len(paths)):
        consume(pixels)
        sizes.append(found)
        faults.append(fault)
    return Survey(sizes, faults)


def fingerprint(name: str, entries: Sequence[tuple[str, int, str]]) -> str:
    """SHA-256 over (name, label, digest) of all images of a set."""
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
    file: tuple[Path, str | None], size: tuple[int, int] | None, max_pixels: int
) -> tuple[Pixels | None, tuple[int, int], str]:
    path, digest = file
    try:
        pixels, found = decode(path, size, max_pixels, digest)
    except ChangedImage:
        raise
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
