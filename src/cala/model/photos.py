"""Whatever a user may mean by photos -> an image split: paths, folders, arrays, PIL images."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from cala.data.decoding import SUFFIXES, Pixels, decode, to_pixels
from cala.data.image_scan import scan
from cala.data.images import FilePixels, ImageSplit, Rows
from cala.errors import InputError
from cala.files import reason, shown

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class MemoryPixels:
    """Images that are in memory already, of any sizes."""

    images: tuple[Pixels, ...]

    def __len__(self) -> int:
        return len(self.images)

    def image(self, row: int) -> Pixels:
        return self.images[row]

    def batches(self, rows: Rows, size: int) -> Iterator[Sequence[Pixels]]:
        for start in range(0, len(rows), size):
            yield [self.images[row] for row in rows[start : start + size]]

    def take(self, rows: Rows) -> MemoryPixels:
        return MemoryPixels(tuple(self.images[row] for row in rows))

    def digests(self, rows: Rows) -> list[str]:
        return [_digest(self.images[row]) for row in rows]


def gather(images: Any, labels: Sequence[int] | None = None) -> ImageSplit:
    """One image, several, or folders of them, as a split; labels (n,) default to 0.

    images : path, PIL image, (h, w, 3) uint8 array, (n, h, w, 3) array, or a list of these
    """
    items = _listed(images)
    paths = [item for item in items if isinstance(item, str | os.PathLike)]
    if len(paths) == len(items):
        files = find_files(paths)
        names = tuple(str(path) for path in files)
        source: Any = FilePixels(tuple(files))
    else:
        decoded = [_pixels(item, place) for place, item in enumerate(items)]
        names = tuple(
            str(item) if isinstance(item, str | os.PathLike) else f"image {place}"
            for place, item in enumerate(items)
        )
        source = MemoryPixels(tuple(decoded))
    given = np.zeros(len(source), dtype=np.int64) if labels is None else np.asarray(labels)
    return ImageSplit(given, names, source)


def find_files(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Files as they are given, and the image files below folders, in order."""
    found: list[Path] = []
    for given in paths:
        path = Path(given)
        try:
            is_folder = path.is_dir()
            path.lstat()
        except (OSError, ValueError) as error:
            raise InputError(f"nothing can be read at {shown(path)} ({reason(error)})") from error
        inside = _below(path) if is_folder else [path]
        if not inside:
            raise InputError(f"{shown(path)} holds no image ({', '.join(sorted(SUFFIXES))})")
        found += inside
    if not found:
        raise InputError("no photo was given: name files or folders")
    return found


def with_readable(
    paths: Sequence[Path], work: Callable[[Sequence[Path]], T]
) -> tuple[T | None, list[tuple[Path, str]]]:
    """`work` on the photos that can be read, and the others with the reason.

    Photos are looked at twice only where `work` finds that one of them is bad.
    """
    try:
        return work(paths), []
    except InputError:
        faults = scan(paths).faults
        bad = [(path, why) for path, why in zip(paths, faults, strict=True) if why]
        if not bad:
            raise
    good = [path for path, why in zip(paths, faults, strict=True) if not why]
    return (work(good) if good else None), bad


def _below(folder: Path) -> list[Path]:
    """Image files at any depth; links to folders are not followed, so no loop can trap us."""
    images: list[Path] = []

    def refuse(error: OSError) -> None:
        raise InputError(f"{shown(error.filename)} cannot be read ({reason(error)})") from error

    for root, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        images += [
            Path(root, name)
            for name in sorted(files)
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES
        ]
    return images


def _listed(images: Any) -> list[Any]:
    if isinstance(images, str | os.PathLike | Image.Image):
        return [images]
    if isinstance(images, np.ndarray) and images.ndim in (2, 3):
        return [images]
    try:
        items = list(images)
    except TypeError:
        raise InputError(
            f"photos are a {type(images).__name__}: give paths, PIL images or (h, w, 3) arrays"
        ) from None
    if not items:
        raise InputError("no photo was given: name files or folders")
    return items


def _pixels(item: Any, place: int) -> Pixels:
    if isinstance(item, str | os.PathLike):
        return decode(Path(item))[0]
    if isinstance(item, Image.Image):
        return to_pixels(item)
    if isinstance(item, np.ndarray) and item.dtype == np.uint8 and item.ndim in (2, 3):
        return item
    kind = f"{item.dtype} {item.shape}" if isinstance(item, np.ndarray) else type(item).__name__
    raise InputError(
        f"photo {place} is a {kind}: give paths, PIL images or (h, w, 3) arrays of uint8"
    )


def _digest(pixels: Pixels) -> str:
    size = repr(pixels.shape).encode()
    return hashlib.sha256(size + np.ascontiguousarray(pixels).tobytes()).hexdigest()
