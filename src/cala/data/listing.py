"""Sets whose images are files: from a listing of paths to an image set."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from cala.data.cache import Entry, cached
from cala.data.decoding import MAX_PIXELS, SUFFIXES, Pixels
from cala.data.image_scan import ImageScan, decode_all, digests, scan, set_fingerprint
from cala.data.images import (
    ArrayPixels,
    BadImage,
    FilePixels,
    ImageSet,
    ImageSplit,
    PixelSource,
)
from cala.errors import InputError
from cala.files import counted, shown

MAX_TEXT = 64 << 20  # bytes of a list of images


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

    def identify(self, known: Sequence[str] | None = None) -> str:
        """Return the fingerprint of the content of all files; `known` are their digests."""
        parts = (("train", self.train), ("test", self.test))
        names = [f"{part}/{name}" for part, files in parts for name in files.names]
        labels = self.train.labels + self.test.labels
        found = digests(self.paths) if known is None else known
        return set_fingerprint(self.name, list(zip(names, labels, found, strict=True)))


def open_lazily(listing: Listing, on_bad: str, max_pixels: int = MAX_PIXELS) -> ImageSet:
    """Leave images in their files; `skip` reads them all once to know which to leave out."""
    sources = [FilePixels(tuple(part.paths), max_pixels) for part in (listing.train, listing.test)]
    if on_bad == "skip":
        found = scan(listing.paths, max_pixels)
    else:
        faults = ["" if path.is_file() else "no such file" for path in listing.paths]
        found = ImageScan([], faults)
    return _assemble(listing, sources, found, on_bad, listing.identify)


def open_decoded(
    listing: Listing, size: tuple[int, int], on_bad: str, max_pixels: int = MAX_PIXELS
) -> ImageSet:
    """Decode images once, resize them to (h, w), and keep them in the cache."""
    known = digests(listing.paths)
    content = listing.identify(known)

    def build(folder: Path) -> tuple[dict[str, Any], dict[str, Pixels]]:
        blank = bytes(size[0] * size[1] * 3)
        # Written as a file, since a memory map on a full disk ends the process without a word.
        with (folder / "pixels").open("wb") as file:

            def write(pixels: Pixels | None) -> None:
                file.write(blank if pixels is None else pixels.tobytes())

            found = decode_all(listing.paths, write, size, max_pixels, known)
        images = np.memmap(folder / "pixels", np.uint8, "r", 0, (len(listing.paths), *size, 3))
        return {"faults": found.faults, "sizes": found.sizes}, {"images": images}

    name = f"{listing.name}-{size[0]}x{size[1]}"
    if max_pixels != MAX_PIXELS:  # it decides which images are refused
        name += f"-{max_pixels}"
    entry: Entry = cached(name, content, build, listing.root)
    rows, split = np.arange(len(listing.paths)), len(listing.train)
    sources = [ArrayPixels(entry.arrays["images"], part) for part in (rows[:split], rows[split:])]
    found = ImageScan([(h, w) for h, w in entry.info["sizes"]], entry.info["faults"])
    return _assemble(listing, sources, found, on_bad, lambda: content)


def _assemble(
    listing: Listing,
    sources: Sequence[PixelSource],
    found: ImageScan,
    on_bad: str,
    identify: Callable[[], str],
) -> ImageSet:
    if not listing.paths:
        detail = f"{shown(listing.root)} contains no image of {listing.name}"
        raise InputError(detail, field="path", code="no_images")
    names = listing.train.names + listing.test.names
    faulty = [(shown(n), why) for n, why in zip(names, found.faults, strict=True) if why]
    if faulty and on_bad == "raise":
        listed = preview((f"{name} ({why})" for name, why in faulty))
        raise InputError(
            f"{listing.name}: {counted(len(faulty), 'image')} cannot be used: {listed}",
            "fix or remove them, or open the set with on_bad='skip'",
            code="bad_images",
        )
    good = np.array([not why for why in found.faults], dtype=bool)
    split = len(listing.train)
    train, test = (
        ImageSplit(np.array(files.labels, dtype=np.int64), tuple(files.names), source).take(keep)
        for files, source, keep in zip(
            (listing.train, listing.test), sources, (good[:split], good[split:]), strict=True
        )
    )
    sizes = Counter(size for size, why in zip(found.sizes, found.faults, strict=False) if not why)
    return ImageSet(
        name=listing.name,
        classes=listing.classes,
        train=train,
        test=test,
        source=listing.root,
        identify=identify,
        skipped=tuple(BadImage(name, why) for name, why in faulty),
        notes=tuple(listing.notes),
        sizes=tuple(sizes.most_common()),
    )


def class_folders(root: Path) -> list[Path]:
    """Return the folders of `root` in order of their names, without hidden ones."""
    return sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))


def images_in(folder: Path, notes: list[str]) -> list[Path]:
    """Return the image files of a folder by extension, in order of their names.

    A broken link with the right extension counts as an image, so that it is reported later.
    """
    files = [p for p in sorted(folder.iterdir()) if not p.name.startswith(".") and not p.is_dir()]
    others = [path.name for path in files if path.suffix.lower() not in SUFFIXES]
    if others:
        count = counted(len(others), "file")
        notes.append(f"{shown(folder.name)}: {count} ignored, not images ({shown(others[0])})")
    return [path for path in files if path.suffix.lower() in SUFFIXES]


def below(root: Path, name: str, source: str) -> Path:
    """Return root/name; refuse a `name` that leads out of `root`."""
    parts = PurePosixPath(name).parts
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts or "\0" in name:
        detail = f"{source} names {shown(name)!r}, which is not a path below its folder"
        raise InputError(detail, code="outside")
    return root.joinpath(*parts)


def read_text(path: Path) -> str:
    """Return the text of a small file."""
    if path.stat().st_size > MAX_TEXT:
        detail = f"{shown(path)} has more than {MAX_TEXT >> 20} MiB, too much for a list"
        raise InputError(detail, "get it again", code="too_large")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        detail = f"{shown(path)} is not a text file in UTF-8"
        raise InputError(detail, "get it again", code="damaged_file") from error


def text_lines(path: Path) -> list[str]:
    """Return the lines of a small file, without empty ones."""
    return [line for line in re.split(r"\r?\n", read_text(path)) if line.strip()]


def preview(items: Iterable[str], limit: int = 3) -> str:
    """Return the first few of many names, for a message."""
    names = list(items)
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(shown(name) for name in names[:limit]) + more
