"""Sets whose images are files: from a listing of paths to an image set."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from cala.data.cache import Entry, cached
from cala.data.decoding import MAX_PIXELS, SUFFIXES, Pixels
from cala.data.images import ArrayPixels, BadImage, FilePixels, ImageSet, ImageSplit, Rows
from cala.data.survey import (
    UNREADABLE,
    Survey,
    decode_all,
    digests,
    fingerprint,
    name_faults,
    survey,
)
from cala.errors import InputError
from cala.files import shown


@dataclass
class Files:
    """Paths, names and labels of one part of a set, row by row."""

    paths: list[Path] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)

    def add(self, path: Path, name: str, label: int) -> None:
        self.paths.append(path)
        self.names.append(name)
        self.labels.append(label)

    def __len__(self) -> int:
        return len(self.paths)


@dataclass
class Listing:
    """A set as its layout describes it, before any image is opened."""

    name: str
    root: Path
    classes: tuple[str, ...]
    train: Files = field(default_factory=Files)
    test: Files = field(default_factory=Files)
    notes: list[str] = field(default_factory=list)

    @property
    def paths(self) -> list[Path]:
        return self.train.paths + self.test.paths

    @property
    def names(self) -> list[str]:
        return self.train.names + self.test.names

    def require_images(self) -> None:
        if not self.paths:
            raise InputError(f"{shown(self.root)} holds no image of {self.name}")

    def identify(self, known: Sequence[str] | None = None) -> str:
        """The content fingerprint of all files; `known` are their digests."""
        labels = self.train.labels + self.test.labels
        parts = ["train"] * len(self.train) + ["test"] * len(self.test)
        names = [f"{part}/{name}" for part, name in zip(parts, self.names, strict=True)]
        entries = list(zip(names, labels, known or digests(self.paths), strict=True))
        return fingerprint(self.name, entries)


def open_lazily(listing: Listing, on_bad: str, max_pixels: int = MAX_PIXELS) -> ImageSet:
    """Images stay in their files. `skip` reads them all once to know which to leave out.

    max_pixels : larger images are refused before they are decoded
    """
    check_max_pixels(max_pixels)
    listing.require_images()
    sources = [FilePixels(tuple(part.paths), max_pixels) for part in (listing.train, listing.test)]
    if on_bad == "skip":
        found = survey(listing.paths, max_pixels)
        return _assemble(listing, sources, found.faults, found.sizes, on_bad, listing.identify)
    faults = ["" if path.is_file() else "no such file" for path in listing.paths]
    return _assemble(listing, sources, faults, [], on_bad, listing.identify)


def open_decoded(
    listing: Listing, size: tuple[int, int], on_bad: str, max_pixels: int = MAX_PIXELS
) -> ImageSet:
    """Images are decoded once, resized to (h, w), and kept in the cache.

    max_pixels : larger images are refused before they are decoded
    """
    check_max_pixels(max_pixels)
    listing.require_images()
    known = digests(listing.paths)
    content = listing.identify(known)

    def build(folder: Path) -> tuple[dict[str, Any], dict[str, Pixels]]:
        blank = bytes(size[0] * size[1] * 3)
        # Written as a file, since a memory map on a full disk ends the process without a word.
        with (folder / "pixels").open("wb") as file:

            def write(pixels: Pixels | None) -> None:
                file.write(blank if pixels is None else pixels.tobytes())

            # What is kept under the digests of the files must be decoded from the same bytes.
            same = [None if digest == UNREADABLE else digest for digest in known]
            found: Survey = decode_all(listing.paths, write, size, max_pixels, same)
        images = np.memmap(folder / "pixels", np.uint8, "r", 0, (len(listing.paths), *size, 3))
        return {"faults": found.faults, "sizes": found.sizes}, {"images": images}

    name = f"{listing.name}-{size[0]}x{size[1]}"
    if max_pixels != MAX_PIXELS:  # which images are refused is part of what is kept
        name += f"-{max_pixels}"
    entry: Entry = cached(name, content, build, listing.root)
    rows, split = np.arange(len(listing.paths)), len(listing.train)
    sources = [ArrayPixels(entry.arrays["images"], part) for part in (rows[:split], rows[split:])]
    sizes = [(height, width) for height, width in entry.info["sizes"]]
    return _assemble(listing, sources, entry.info["faults"], sizes, on_bad, lambda: content)


def _assemble(
    listing: Listing,
    sources: Sequence[Any],
    faults: Sequence[str],
    sizes: Sequence[tuple[int, int]],
    on_bad: str,
    identify: Any,
) -> ImageSet:
    faulty = [(shown(n), why) for n, why in zip(listing.names, faults, strict=True) if why]
    if faulty and on_bad == "raise":
        raise name_faults(listing.name, faulty)
    good = np.array([not why for why in faults], dtype=bool)
    split = len(listing.train)
    splits = []
    for files, source, keep in zip(
        (listing.train, listing.test), sources, (good[:split], good[split:]), strict=True
    ):
        labels: Rows = np.array(files.labels, dtype=np.int64)
        splits.append(ImageSplit(labels, tuple(files.names), source).take(keep))
    counted = Counter(size for size, why in zip(sizes, faults, strict=False) if not why)
    return ImageSet(
        name=listing.name,
        classes=listing.classes,
        train=splits[0],
        test=splits[1],
        source=listing.root,
        identify=identify,
        skipped=tuple(BadImage(name, why) for name, why in faulty),
        notes=tuple(listing.notes),
        sizes=tuple(counted.most_common()),
    )


def check_max_pixels(value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"max_pixels is {value!r}: give a whole number of at least 1")


def class_folders(root: Path) -> list[Path]:
    """Folders of `root` in order of their names, hidden ones left out."""
    return sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))


def images_in(folder: Path, notes: list[str]) -> list[Path]:
    """Image files of a folder by extension, in order of their names.

    A broken link with the right extension counts as an image, so that it is named later.
    """
    images: list[Path] = []
    others: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.is_dir():
            continue
        (images if path.suffix.lower() in SUFFIXES else others).append(path)
    if others:
        named = shown(others[0].name)
        notes.append(f"{shown(folder.name)}: {len(others)} files are no images ({named})")
    return images


def below(root: Path, name: str, source: str) -> Path:
    """root/name, refused if `name` would lead out of `root`."""
    parts = PurePosixPath(name).parts
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts or "\0" in name:
        raise InputError(f"{source} names {shown(name)!r}, which is not a path below its folder")
    return root.joinpath(*parts)


def read_text(path: Path) -> str:
    """A small text file; what cannot be read is named."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{shown(path)} is not a text file in UTF-8: get it again") from error


def text_lines(path: Path) -> list[str]:
    """Its lines, empty ones left out."""
    return [line for line in re.split(r"\r?\n", read_text(path)) if line.strip()]


def preview(items: Iterable[str], limit: int = 3) -> str:
    """The first few of many names, for a message."""
    names = list(items)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(shown(name) for name in names[:limit]) + more
