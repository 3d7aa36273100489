"""Reading a folder of shards in bounded memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import Any

import numpy as np

from cala import storage
from cala.core.fakes import FakePool
from cala.core.rows import Array, StoredRows
from cala.data.progress import report_progress
from cala.data.shards import SHARD_SPLITS, Manifest, Shard, read_classes, read_manifest
from cala.errors import DamagedFile, InputError
from cala.files import sha256, shown
from cala.heads.checks import check_features
from cala.registry import check_choice

BLOCK = 65_536
SPARSE = 4  # read a whole stretch of a file if at least one in this many rows is wanted


_MEMBERS = {
    "x": {"F16", "F32"},
    "y": {"I64"},
    "holdout": {"U8"},
    "pairs": {"I64"},
    "names": {"U8"},
    "name_ends": {"I64"},
}
"""Members of a shard with the types that each may have, in safetensors' names."""


@dataclass(frozen=True)
class Part:
    """An open shard: its entry in the manifest, and its members."""

    entry: Shard
    members: storage.StoredTensors

    @property
    def path(self) -> Path:
        return self.members.path

    def has(self, *members: str) -> bool:
        return all(member in self.members.shapes for member in members)

    def damaged(self, why: str) -> DamagedFile:
        return DamagedFile(shown(self.path), why, storage.AGAIN)


class Shards:
    """A folder of shards, opened: nothing but headers has been read.

    classes : class names by label
    """

    def __init__(self, folder: Path, manifest: Manifest, classes: tuple[str, ...]) -> None:
        self.folder, self.manifest, self.classes = folder, manifest, classes
        self._parts = {
            split: tuple(self._open(s) for s in manifest.shards if s.split == split)
            for split in SHARD_SPLITS
        }

    def _open(self, entry: Shard) -> Part:
        part = Part(entry, storage.StoredTensors(self.folder / entry.file))
        rows = entry.rows
        shapes: dict[str, tuple[int, ...]] = {"x": (rows, self.dim), "pairs": (rows, 2)}
        shapes |= dict.fromkeys(("y", "holdout", "name_ends"), (rows,))
        needed = {"x", "y", *(["pairs"] if entry.split == "fake" else [])}
        for name in needed | part.members.shapes.keys():
            shape, dtype = part.members.shapes.get(name), part.members.dtypes.get(name)
            wanted = shapes.get(name, shape)
            if shape != wanted or dtype not in _MEMBERS.get(name, ()):
                raise part.damaged(f"{name} is {dtype} {shape}, the manifest says {wanted}")
        if part.members.dtypes["x"] != f"F{self.manifest.dtype.removeprefix('float')}":
            raise part.damaged(f"x is not {self.manifest.dtype}, as the manifest says")
        return part

    @property
    def dim(self) -> int:
        return self.manifest.dim

    def parts(self, split: str) -> tuple[Part, ...]:
        check_choice("split", split, SHARD_SPLITS)
        return self._parts[split]

    def rows(self, split: str) -> int:
        """How many rows a split has."""
        return self.manifest.rows[split]

    def features(self, split: str) -> ShardRows:
        """The embeddings of a split, read as they are asked for."""
        return ShardRows(self.parts(split), self.dim)

    def labels(self, split: str) -> Array:
        """(n,) labels of a split: 8 bytes per row, the one thing kept of every row."""
        none = np.empty(0, dtype=np.int64)
        return np.concatenate([none, *(self._labels(part) for part in self.parts(split))])

    def _labels(self, part: Part) -> Array:
        y = part.members.read("y")
        bad = y[(y < 0) | (y >= len(self.classes))]
        if len(bad) and part.entry.split != "fake":
            raise part.damaged(f"y holds {int(bad[0])}, labels are 0..{len(self.classes) - 1}")
        return y

    def holdout(self) -> Array | None:
        """(n,) bool, training rows that the encoder never saw; None if no shard marks any."""
        found = np.zeros(self.rows("train"), dtype=bool)
        start = 0
        for part in self.parts("train"):
            if part.has("holdout"):
                found[start : start + part.entry.rows] = part.members.read("holdout")
            start += part.entry.rows
        return found if found.any() else None

    def names(self, split: str) -> Iterator[str]:
        """Image names in the order of the rows, a shard at a time; empty where none were kept."""
        for part in self.parts(split):
            if not part.has("names", "name_ends"):
                yield from repeat("", part.entry.rows)
                continue
            text = part.members.read("names").tobytes()
            ends = part.members.read("name_ends").tolist()
            if ends != sorted(ends) or ends[0] < 0 or ends[-1] != len(text):
                raise part.damaged("its names do not fit their ends")
            for start, end in pairwise([0, *ends]):
                yield text[start:end].decode("utf-8", "surrogateescape")

    def blocks(self, split: str, rows: int = BLOCK) -> Iterator[tuple[Array, Array]]:
        """Embeddings (b, d) float32 and labels (b,), at most `rows` at a time, in order."""
        if rows < 1:
            raise InputError(f"rows is {rows}", "use 1 or more", field="rows")
        for part in self.parts(split):
            y = self._labels(part)
            x = ShardRows((part,), self.dim)
            for start in range(0, len(y), rows):
                yield x[start : start + rows], y[start : start + rows]

    def fakes(self) -> FakePool | None:
        """The pool of fake classes, in memory: it does not grow with the rows."""
        parts = self.parts("fake")
        if not parts:
            return None
        x, y = self.features("fake")[:], self.labels("fake")
        pairs = np.concatenate([part.members.read("pairs") for part in parts])
        count = max(1, int(y.max()) + 1)
        order = np.argsort(y, kind="stable")
        if len(y) % count or (y[order] != np.arange(count).repeat(len(y) // count)).any():
            raise parts[0].damaged("fake classes are not equal in size, or not numbered from 0")
        both = pairs[order].reshape(count, -1, 2)
        if (both != both[:, :1]).any() or not (0 <= both.min() <= both.max() < len(self.classes)):
            raise parts[0].damaged("a fake class mixes different pairs, or unknown classes")
        return FakePool(x[order].reshape(count, -1, self.dim), both[:, 0].copy())

    def verify(self) -> None:
        """Read every byte and compare checksums; a shard that differs is named."""
        total, done = sum(s.bytes for s in self.manifest.shards), 0
        for part in chain(*self._parts.values()):
            if sha256(part.path) != part.entry.sha256:
                raise part.damaged("its checksum is not the manifest's")
            done += part.entry.bytes
            report_progress("checking", done, total)


class ShardRows(StoredRows):
    """The embeddings of some shards as one array; `chosen` numbers the rows that are in it."""

    def __init__(self, parts: tuple[Part, ...], dim: int, chosen: Array | None = None) -> None:
        self._parts = parts
        counts = [part.entry.rows for part in parts]
        self._starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self._chosen = chosen
        self.shape = (int(self._starts[-1]) if chosen is None else len(chosen), dim)

    def where(self, rows: Array) -> ShardRows:
        if rows.dtype == bool:
            if rows.shape != (len(self),):
                raise IndexError(f"a mask of shape {tuple(rows.shape)} for {len(self)} rows")
            rows = np.flatnonzero(rows)
        chosen = rows if self._chosen is None else self._chosen[rows]
        return ShardRows(self._parts, self.shape[1], chosen)

    def __getitem__(self, rows: slice | Array) -> Array:
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            report_progress("reading", stop, len(self))
            rows = np.arange(start, stop, step)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        shape = (*rows.shape, self.shape[1])
        flat = rows.reshape(-1)
        if len(flat) and not -len(self) <= int(flat.min()) <= int(flat.max()) < len(self):
            raise IndexError(f"row {int(flat.max())} of {len(self)}")
        flat = np.where(flat < 0, flat + len(self), flat)
        chosen = flat if self._chosen is None else self._chosen[flat]
        return self._gather(chosen).reshape(shape)

    def fingerprint(self) -> str:
        digest = hashlib.sha256(json.dumps([part.entry.sha256 for part in self._parts]).encode())
        if self._chosen is not None:
            digest.update(self._chosen.tobytes())
        return digest.hexdigest()

    def _gather(self, rows: Array) -> Array:
        """Rows in any order: every shard is opened once, and read from its start to its end."""
        result = np.empty((len(rows), self.shape[1]), self.dtype)
        ordered = bool((rows[1:] >= rows[:-1]).all())
        order = np.arange(len(rows)) if ordered else np.argsort(rows, kind="stable")
        bounds = np.searchsorted(rows[order], self._starts)
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            places = order[bounds[number] : bounds[number + 1]]
            part, local = self._parts[number], rows[places] - self._starts[number]
            low, high = int(local[0]), int(local[-1]) + 1
            if high - low <= SPARSE * len(local):
                values = part.members.read("x", low, high)[local - low]
            else:
                values = part.members.take("x", local)
            try:
                result[places] = check_features(values)
            except InputError as error:
                raise part.damaged(str(error)) from error
        return result


def open_shards(folder: str | Path) -> Shards:
    """Open a folder of shards; a file that is missing, cut short or of another shape is named."""
    folder = Path(folder).absolute()  # other processes may work in another folder
    manifest = read_manifest(folder)
    if not manifest.complete:
        left = manifest.missing
        some = f", such as {shown(left[0])}" if left else ""
        raise InputError(
            f"{shown(folder)} is not complete: {len(left):,} parts are missing{some}",
            "rerun the command that writes it to resume",
            field="path",
            code="incomplete",
        )
    return Shards(folder, manifest, read_classes(folder, manifest.classes))


def shard_fields(path: Path) -> dict[str, Any]:
    """The fields of `Embeddings` of a folder of shards.

    Names of images stay in the folder: a hundred million of them do not fit into memory.
    """
    shards = open_shards(path)
    if not shards.rows("train"):
        detail = f"{shown(path)} has no training row"
        raise InputError(detail, "a class is learned from at least one", field="path")
    return {
        "x_train": shards.features("train"),
        "y_train": shards.labels("train"),
        "x_test": shards.features("test"),
        "y_test": shards.labels("test"),
        "fakes": shards.fakes(),
        "holdout": shards.holdout(),
        "scale": shards.manifest.scale,
        "class_names": shards.classes,
        "provenance": shards.manifest.provenance or None,
    }
