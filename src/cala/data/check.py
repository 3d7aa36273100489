"""What is at a path: which images or embeddings, and what is missing, broken or repeated."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cala.core.rows import Array
from cala.data.embedding_files import checked, is_embeddings_file, read_members
from cala.data.embeddings import Embeddings, load_embeddings
from cala.data.image_scan import UNREADABLE
from cala.data.images import BadImage, ImageSet
from cala.data.protocol import MANIFESTS, Protocol, find_shots, load_protocol
from cala.data.sets import open_images, recognise
from cala.data.shard_rows import open_shards
from cala.data.shards import is_shards
from cala.errors import InputError
from cala.files import shown

FEATURES = "features"
"""What embeddings are called as a kind of data, and the prefix of their paths."""


@dataclass(frozen=True)
class Duplicate:
    """Images with the same content in several classes, or in train and test."""

    names: tuple[str, ...]
    classes: tuple[str, ...]
    across_classes: bool
    across_parts: bool


@dataclass(frozen=True)
class Coverage:
    """How much of a benchmark's protocol a copy of its images covers.

    found : of classes, images and published shots, how many there are and should be
    short : how many images each class lacks, by part, if the number per class is known
    missing : classes without an image; unknown : classes that the protocol does not have
    """

    name: str
    base: int
    way: int
    shot: int
    sessions: int
    found: dict[str, tuple[int, int]]
    short: dict[str, dict[str, int]]
    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    missing_shots: tuple[str, ...]

    @property
    def complete(self) -> bool:
        whole = all(there == wanted for there, wanted in self.found.values())
        return whole and not self.unknown and not any(self.short.values())


@dataclass(frozen=True)
class DataReport:
    """Everything `check_data` found; `as_json` gives it as plain values.

    error : why the data cannot be opened at all, empty if they can
    Of images, sizes : ((h, w), number of images), the most frequent first; repeats : further copies
        of an image within its own class and part
    Of embeddings, train_each, test_each : fewest and most rows of a class; holdout : held-out rows
        and how many classes have some, None if not known; fakes : fake classes and images of each;
        names : parts with file names; ignored : members that cala does not know
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
    protocol: Coverage | None = None
    train_each: tuple[int, int] = (0, 0)
    test_each: tuple[int, int] = (0, 0)
    dimension: int = 0
    dtype: str = ""
    scale: float | None = None
    holdout: tuple[int, int] | None = None
    fakes: tuple[int, int] | None = None
    class_names: tuple[str, ...] | None = None
    names: tuple[str, ...] = ()
    provenance: dict[str, Any] | None = None
    ignored: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the data can be opened and every image can be used."""
        return not self.error and not self.unreadable

    @property
    def complete(self) -> bool | None:
        """Whether all that the benchmark's protocol needs is there; None for other data."""
        return None if self.protocol is None else self.protocol.complete

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok, "complete": self.complete}


def check_data(path: str | Path, dataset: str | None = None, **options: Any) -> DataReport:
    """Read every image of a set, or every row of embeddings, and report what was found.

    What is wrong is in the report, not raised.
    dataset : the kind to expect; by default recognised by name and layout
    options : of an image set, as for `open_images`
    """
    text = str(path)
    named = text.startswith(f"{FEATURES}:")
    if named or dataset == FEATURES or (dataset is None and is_embeddings_file(text)):
        path, dataset = Path(text.removeprefix(f"{FEATURES}:")), FEATURES
    try:
        if dataset == FEATURES:
            return _check_embeddings(Path(path))
        dataset = dataset if dataset is not None else recognise(path)
        return _check_images(str(path), open_images(path, dataset, on_bad="skip", **options))
    except InputError as error:
        return DataReport(str(path), dataset, str(error))


def _check_images(path: str, images: ImageSet) -> DataReport:
    duplicates, repeats = find_duplicates(images)
    protocol = load_protocol(images.name) if images.name in MANIFESTS else None
    return DataReport(
        path=path,
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
        protocol=None if protocol is None else protocol_coverage(protocol, images),
    )


def find_duplicates(images: ImageSet) -> tuple[list[Duplicate], int]:
    """Return groups of equal images across classes or parts, and the number of other copies."""
    groups: dict[str, list[tuple[str, int, str]]] = defaultdict(list)
    for part, split in (("train", images.train), ("test", images.test)):
        for content, label, name in zip(split.digests(), split.labels, split.names, strict=True):
            if content != UNREADABLE:
                full = name if name.startswith(f"{part}/") else f"{part}: {name}"
                groups[content].append((part, int(label), shown(full)))
    crossing, repeats = [], 0
    for members in groups.values():
        parts, labels, names = zip(*members, strict=True)
        classes = tuple(images.classes[label] for label in labels)
        across_classes, across_parts = len(set(labels)) > 1, len(set(parts)) > 1
        if across_classes or across_parts:
            crossing.append(Duplicate(names, classes, across_classes, across_parts))
        else:
            repeats += len(members) - 1
    return crossing, repeats


def protocol_coverage(protocol: Protocol, images: ImageSet) -> Coverage:
    """Compare classes, images per part and the published shots; classes are compared by name."""
    expected = protocol.expected
    assert expected is not None, protocol.name
    counts = {
        part: Counter(images.classes[label] for label in split.labels.tolist())
        for part, split in (("train", images.train), ("test", images.test))
    }
    there = counts["train"] | counts["test"]
    rows = find_shots(images.train.names, len(images.train), protocol.shots)
    found, short = {}, {}
    groups = (expected.classes[: protocol.base], expected.classes[protocol.base :])
    for place, (kind, group) in enumerate(zip(("base", "novel"), groups, strict=True)):
        found[f"{kind} classes"] = (sum(name in there for name in group), len(group))
        for part, count in counts.items():
            what, each = f"{kind} {part} images", expected.per_class[part][place] or 0
            found[what] = (sum(count[name] for name in group), expected.images[part][place])
            short[what] = {name: each - count[name] for name in group if count[name] < each}
    found["published shots"] = (len(rows), len(protocol.shots))
    numbers = {key: getattr(protocol, key) for key in ("name", "base", "way", "shot", "sessions")}
    return Coverage(
        **numbers,
        found=found,
        short=short,
        missing=tuple(name for name in expected.classes if name not in there),
        unknown=tuple(name for name in images.classes if name not in expected.classes),
        missing_shots=tuple(str(shot) for shot in protocol.shots if shot not in rows),
    )


def _check_embeddings(path: Path) -> DataReport:
    """Read all of a file, or of a folder of shards, whose checksums are compared."""
    ignored: tuple[str, ...] = ()
    if is_shards(path):
        shards = open_shards(path)
        shards.verify()
        for split in ("train", "test"):
            for _ in shards.blocks(split):
                pass
        data, dtype = load_embeddings(path), shards.manifest.dtype
        named = {split: any(shards.names(split)) for split in ("train", "test")}
    else:
        members, ignored = read_members(path)
        data, dtype = Embeddings(**checked(path, members, ignored)), str(members["x_train"].dtype)
        named = {"train": data.names_train is not None, "test": data.names_test is not None}
    held = None if data.holdout is None else data.y_train[data.holdout]
    return DataReport(
        path=str(path),
        dataset=FEATURES,
        classes=len(np.unique(data.y_train)),
        train=len(data.y_train),
        test=len(data.y_test),
        train_each=_each(data.y_train),
        test_each=_each(data.y_test),
        dimension=data.x_train.shape[1],
        dtype=dtype,
        scale=data.scale,
        holdout=None if held is None else (len(held), len(np.unique(held))),
        fakes=None if data.fakes is None else (len(data.fakes), data.fakes.images),
        class_names=data.class_names,
        names=tuple(split for split, there in named.items() if there),
        provenance=data.provenance,
        ignored=ignored,
    )


def _each(labels: Array) -> tuple[int, int]:
    """Return the fewest and the most rows of a class."""
    counts = np.unique(labels, return_counts=True)[1]
    return (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
