"""Sets whose images are files: from a listing of paths to an image set."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from cala.data.cache import cached
from cala.data.decoding import MAX_PIXELS, Pixels, Size
from cala.data.formats import LeftOut, is_system, left_out_note, why_left_out
from cala.data.image_scan import ImageScan, decode_all, digests, scan, set_fingerprint
from cala.data.images import ArrayPixels, BadImage, FilePixels, ImageSet, ImageSplit, PixelSource
from cala.errors import InputError
from cala.files import counted, preview, shown

MAX_TEXT = 64 << 20  # bytes of a list of images


class File(NamedTuple):
    """An image of a set; its name is a stable id, such as the path below the root."""

    path: Path
    name: str
    label: int


@dataclass
class Listing:
    """A set as its layout describes it, before any image is opened."""

    name: str
    root: Path
    classes: tuple[str, ...]
    train: list[File] = field(default_factory=list)
    test: list[File] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    @property
    def paths(self) -> list[Path]:
        """Paths of all images, of which there must be some."""
        if not self.train and not self.test:
            detail = f"{shown(self.root)} contains no image of {self.name}"
            raise InputError(detail, field="path", code="no_images")
        return [file.path for file in self.train + self.test]

    def identify(self, known: Sequence[str] | None = None) -> str:
        """Return the fingerprint of the content of all files; `known` are their digests."""
        names = [f"train/{file.name}" for file in self.train]
        names += [f"test/{file.name}" for file in self.test]
        labels = [file.label for file in self.train + self.test]
        found = digests(self.paths) if known is None else known
        return set_fingerprint(self.name, list(zip(names, labels, found, strict=True)))


def open_lazily(listing: Listing, on_bad: str, max_pixels: int = MAX_PIXELS) -> ImageSet:
    """Leave images in their files; `skip` reads them all once to know which to leave out."""
    paths = listing.paths
    if on_bad == "skip":
        found = scan(paths, max_pixels)
    else:
        found = ImageScan([], ["" if path.is_file() else "no such file" for path in paths])
    pixels = FilePixels(tuple(paths), max_pixels)
    return _assemble(listing, pixels, found, on_bad, listing.identify)


def open_decoded(
    listing: Listing, size: Size, on_bad: str, max_pixels: int = MAX_PIXELS
) -> ImageSet:
    """Decode images once, resize them to (h, w), and keep them in the cache."""
    paths = listing.paths
    known = digests(paths)
    content = listing.identify(known)

    def build(folder: Path) -> tuple[dict[str, Any], dict[str, Pixels]]:
        blank = bytes(size[0] * size[1] * 3)
        # Written as a file, since a memory map on a full disk ends the process without a word.
        with (folder / "pixels").open("wb") as file:

            def write(pixels: Pixels | None) -> None:
                file.write(blank if pixels is None else pixels.tobytes())

            found = decode_all(paths, write, size, max_pixels, known)
        images = np.memmap(folder / "pixels", np.uint8, "r", 0, (len(paths), *size, 3))
        return asdict(found), {"images": images}

    name = f"{listing.name}-{size[0]}x{size[1]}"
    if max_pixels != MAX_PIXELS:  # it decides which images are refused
        name += f"-{max_pixels}"
    entry = cached(name, content, build, listing.root)
    pixels = ArrayPixels(entry.arrays["images"], np.arange(len(paths)))
    return _assemble(listing, pixels, ImageScan(**entry.info), on_bad, lambda: content)


def _assemble(
    listing: Listing,
    pixels: PixelSource,
    found: ImageScan,
    on_bad: str,
    identify: Callable[[], str],
) -> ImageSet:
    files, split = listing.train + listing.test, len(listing.train)
    faulty = [(shown(f.name), why) for f, why in zip(files, found.faults, strict=True) if why]
    if faulty and on_bad == "raise":
        listed = preview(f"{name} ({why})" for name, why in faulty)
        raise InputError(
            f"{listing.name}: {counted(len(faulty), 'image')} cannot be used: {listed}",
            "fix or remove them, or open the set with on_bad='skip'",
            code="bad_images",
        )
    labels = np.array([file.label for file in files], dtype=np.int64)
    whole = ImageSplit(labels, tuple(file.name for file in files), pixels)
    good = np.flatnonzero([not why for why in found.faults])
    pairs = zip(found.sizes, found.faults, strict=False)
    sizes = Counter((height, width) for (height, width), why in pairs if not why)
    return ImageSet(
        name=listing.name,
        classes=listing.classes,
        train=whole.take(good[good < split]),
        test=whole.take(good[good >= split]),
        source=listing.root,
        identify=identify,
        skipped=tuple(BadImage(name, why) for name, why in faulty),
        notes=(*listing.notes, *_about_left_out(listing)),
        left_out=tuple(listing.left_out),
        sizes=tuple(sizes.most_common()),
    )


def _about_left_out(listing: Listing) -> list[str]:
    photos = len(listing.train) + len(listing.test)
    return [left_out_note(listing.left_out, photos)] if listing.left_out else []


def class_folders(root: Path) -> list[Path]:
    """Return the folders of `root` in order of their names, without hidden and system ones."""
    return sorted(p for p in root.iterdir() if p.is_dir() and not is_system(p.name))


def images_in(folder: Path, left_out: list[LeftOut]) -> list[Path]:
    """Return the image files of a folder in order of their names; `left_out` takes the others."""
    images = []
    for path in sorted(folder.iterdir()):
        if is_system(path.name) or path.is_dir():
            continue
        why = why_left_out(path)
        if why is None:
            images.append(path)
        else:
            left_out.append(LeftOut(path, why))
    return images


def class_images(folder: Path, left_out: list[LeftOut]) -> list[Path]:
    """`images_in` the folder of a class; `left_out` takes the folders inside it too."""
    left_out += [LeftOut(inside, "folder") for inside in class_folders(folder)]
    return images_in(folder, left_out)


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
