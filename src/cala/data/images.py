"""Image sets in memory: labels and names at once, pixels when they are asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cala.data.decoding import MAX_PIXELS, Pixels, decode
from cala.data.formats import LeftOut
from cala.data.image_scan import UNREADABLE, digests, in_order
from cala.errors import InputError

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ArrayPixels:
    """Decoded images in one (n, h, w, 3) array, usually a memory map; `index` picks its rows."""

    array: Pixels
    index: Rows

    def __len__(self) -> int:
        return len(self.index)

    def image(self, row: int, least: int | None = None) -> Pixels:
        return np.array(self.array[self.index[row]])

    def batches(self, rows: Rows, size: int) -> Iterator[Sequence[Pixels]]:
        for start in range(0, len(rows), size):
            yield np.asarray(self.array[self.index[rows[start : start + size]]])  # type: ignore[misc]

    def take(self, rows: Rows) -> ArrayPixels:
        return ArrayPixels(self.array, self.index[rows])

    def digests(self, rows: Rows) -> list[str]:
        size = repr(self.array.shape[1:]).encode()  # 2×8 and 4×4 pixels may hold the same bytes
        images = (self.array[row].tobytes() for row in self.index[rows])
        return [hashlib.sha256(size + pixels).hexdigest() for pixels in images]


@dataclass(frozen=True, eq=False)
class FilePixels:
    """Images in files, decoded in threads when they are asked for.

    known : digests that were asked for; from then on, pixels come from bytes with that digest
    """

    paths: tuple[Path, ...]
    max_pixels: int = MAX_PIXELS
    known: dict[Path, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.paths)

    def image(self, row: int, least: int | None = None) -> Pixels:
        """least : a side that is enough, as for `decode`"""
        path = self.paths[row]
        return decode(path, None, self.max_pixels, self.known.get(path), least)[0]

    def batches(self, rows: Rows, size: int) -> Iterator[Sequence[Pixels]]:
        images = in_order(self.image, rows.tolist())
        while batch := list(islice(images, size)):
            yield batch

    def take(self, rows: Rows) -> FilePixels:
        paths = tuple(self.paths[row] for row in rows)
        known = {path: self.known[path] for path in paths if path in self.known}
        return FilePixels(paths, self.max_pixels, known)

    def digests(self, rows: Rows) -> list[str]:
        paths = [self.paths[row] for row in rows]
        found = digests(paths)
        pairs = zip(paths, found, strict=True)
        self.known.update((path, digest) for path, digest in pairs if digest != UNREADABLE)
        return found


PixelSource: TypeAlias = ArrayPixels | FilePixels
"""Where pixels come from, by row."""


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """The training or the test part of a set.

    labels : (n,) int64; names : n stable ids, such as the path below the root of the set
    """

    labels: Rows
    names: tuple[str, ...]
    pixels: PixelSource

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, row: int) -> Pixels:
        """(h, w, 3) uint8 of one row."""
        return self.pixels.image(int(self._checked([row])[0]))

    def batches(self, size: int, rows: ArrayLike | None = None) -> Iterator[Sequence[Pixels]]:
        """(h, w, 3) uint8 images in the order of `rows`, `size` at a time.

        Small sets give one (b, h, w, 3) array per batch, others a list of arrays of many sizes.
        """
        if size < 1:
            raise InputError(f"size is {size}", "use 1 or more", field="size")
        chosen = np.arange(len(self)) if rows is None else self._checked(rows)
        return self.pixels.batches(chosen, size)

    def digests(self, rows: ArrayLike | None = None) -> list[str]:
        """SHA-256 of the images of `rows`: what the embedding cache knows them by."""
        return self.pixels.digests(np.arange(len(self)) if rows is None else self._checked(rows))

    def take(self, rows: ArrayLike) -> ImageSplit:
        """The split of these rows alone, in this order."""
        chosen = self._checked(rows)
        names = tuple(self.names[row] for row in chosen)
        return ImageSplit(self.labels[chosen], names, self.pixels.take(chosen))

    def located(self) -> ImageSplit:
        """The same for a process that runs in another folder: paths are absolute."""
        if not isinstance(self.pixels, FilePixels):
            return self
        paths = tuple(path.absolute() for path in self.pixels.paths)
        return replace(self, pixels=replace(self.pixels, paths=paths))

    def _checked(self, rows: ArrayLike) -> Rows:
        chosen = np.asarray(rows)
        if chosen.dtype == bool:
            chosen = chosen.nonzero()[0]
        chosen = chosen.astype(np.int64).reshape(-1)
        outside = chosen[(chosen < 0) | (chosen >= len(self))]
        if len(outside):
            detail = f"row {outside[0]} does not exist"
            raise InputError(detail, f"there are {len(self)} images", field="rows")
        return chosen


@dataclass(frozen=True)
class BadImage:
    """An image that was listed but cannot be used."""

    name: str
    why: str


@dataclass(frozen=True, eq=False)
class ImageSet:
    """A set of images with its training and test part.

    `cala.data.sets.open_images` opens one; labels and names are there at once, pixels are read when
    they are asked for.

    Parameters
    ----------
    name : str
        The kind of set, such as `cifar100` or `folder`.
    classes : tuple of str
        Names in label order, also of classes without an image.
    train, test : ImageSplit
        The two parts.
    source : Path
        Where the set is.
    identify : callable
        Computes `fingerprint`, which reads all images.
    skipped : tuple of BadImage
        Images that were left out because they are missing or unreadable.
    notes : tuple of str
        What a user may want to know, such as folders without an image.
    left_out : tuple of LeftOut
        Files beside the images that are none, such as videos.
    sizes : tuple
        ((h, w), number of files) if all files were read, the most frequent first.

    Examples
    --------
    >>> array = np.zeros((4, 8, 8, 3), np.uint8)
    >>> part = ImageSplit(np.array([0, 0, 1, 1]), tuple("abcd"), ArrayPixels(array, np.arange(4)))
    >>> images = ImageSet("mine", ("cat", "dog"), part, part.take([0, 3]), Path("."), lambda: "x")
    >>> len(images.train), images.test.names, images.train.image(2).shape
    (4, ('a', 'd'), (8, 8, 3))
    """

    name: str
    classes: tuple[str, ...]
    train: ImageSplit
    test: ImageSplit
    source: Path
    identify: Callable[[], str]
    skipped: tuple[BadImage, ...] = ()
    notes: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    sizes: tuple[tuple[tuple[int, int], int], ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of names, labels and the bytes of all images, computed when first used."""
        return self.identify()
