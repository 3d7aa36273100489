"""What lies at a path: which set, what is in it, what is missing, broken or there twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cala.data.against import AgainstProtocol, against_protocol
from cala.data.images import ArrayPixels, BadImage, FilePixels, ImageSet, ImageSplit
from cala.data.protocol import MANIFESTS, load_protocol
from cala.data.sets import open_images, recognise
from cala.data.survey import UNREADABLE, digests
from cala.data.watching import watched
from cala.errors import InputError
from cala.files import sha256_of, shown


@dataclass(frozen=True)
class Duplicate:
    """Images with the same content that stand in several classes, or in train and test."""

    names: tuple[str, ...]
    classes: tuple[str, ...]
    across_classes: bool
    across_parts: bool


@dataclass(frozen=True)
class CheckReport:
    """Everything `check` found; `as_json` gives it as plain values.

    error : why the set could not be opened at all, empty if it could
    sizes : ((h, w), number of images), the most frequent first
    repeats : further copies of an image within its own class and part
    """

    path: str
    dataset: str | None
    error: str = ""
    classes: int = 0
    train: int = 0
    test: int = 0
    sizes: tuple[tuple[tuple[int, int], int], ...] = ()
    unreadable: tuple[BadImage, ...] = ()
    duplicates: tuple[Duplicate, ...] = ()
    repeats: int = 0
    notes: tuple[str, ...] = ()
    fingerprint: str = ""
    protocol: AgainstProtocol | None = None

    @property
    def ok(self) -> bool:
        """Whether the set opens and every image in it can be used."""
        return not self.error and not self.unreadable

    @property
    def complete(self) -> bool | None:
        """Whether all that the benchmark's protocol needs is there; None for other sets."""
        return None if self.protocol is None else self.protocol.complete

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok, "complete": self.complete}


def check(path: str | Path, dataset: str | None = None, **options: Any) -> CheckReport:
    """Read every image of a set once and report; what is wrong is in the report, not raised.

    dataset : the set to expect; recognised by its layout if it is not given
    options : of the set, as for `open_images`
    """
    name = dataset
    try:
        name = dataset if dataset is not None else recognise(path)
        images = open_images(path, name, on_bad="skip", **options)
    except InputError as error:
        return CheckReport(path=str(path), dataset=name, error=str(error))
    duplicates, repeats = find_duplicates(images)
    protocol = load_protocol(images.name) if images.name in MANIFESTS else None
    return CheckReport(
        path=str(path),
        dataset=images.name,
        classes=len(images.classes),
        train=len(images.train),
        test=len(images.test),
        sizes=images.sizes,
        unreadable=images.skipped,
        duplicates=tuple(duplicates),
        repeats=repeats,
        notes=images.notes,
        fingerprint=images.fingerprint,
        protocol=None if protocol is None else against_protocol(protocol, images),
    )


def find_duplicates(images: ImageSet) -> tuple[list[Duplicate], int]:
    """Groups of equal images that cross classes or parts, and how many other copies there are."""
    groups: dict[str, list[tuple[str, int, str]]] = defaultdict(list)
    for part, split in (("train", images.train), ("test", images.test)):
        named = zip(_contents(split), split.labels.tolist(), split.names, strict=True)
        for content, label, name in named:
            if content != UNREADABLE:
                groups[content].append((part, label, _full(part, name)))
    crossing, repeats = [], 0
    for members in groups.values():
        if len(members) == 1:
            continue
        classes = len({label for _, label, _ in members}) > 1
        parts = len({part for part, _, _ in members}) > 1
        if classes or parts:
            names = tuple(name for _, _, name in members)
            called = tuple(images.classes[label] for _, label, _ in members)
            crossing.append(Duplicate(names, called, classes, parts))
        else:
            repeats += len(members) - 1
    return crossing, repeats


def _full(part: str, name: str) -> str:
    """The part goes before the name where the name does not tell it."""
    return shown(name if name.startswith(f"{part}/") else f"{part}: {name}")


def _contents(split: ImageSplit) -> Iterable[str]:
    """Equal strings for equal images: the bytes of files, the pixels of decoded arrays."""
    if isinstance(split.pixels, FilePixels):
        return digests(split.pixels.paths)
    assert isinstance(split.pixels, ArrayPixels)
    return _pixel_digests(split)


def _pixel_digests(split: ImageSplit) -> Iterable[str]:
    images = (image for batch in split.batches(1024) for image in batch)
    for image in watched("comparing", images, len(split)):
        yield sha256_of([np.ascontiguousarray(image).tobytes()])
