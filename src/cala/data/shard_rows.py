"""Reading a folder of shards in bounded memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cala.core.fakes import FakePool
from cala.core.rows import Array, StoredRows
from cala.data.progress import report_progress
from cala.data.shard_file import Member, damaged, map_member, read_header, read_rows
from cala.data.shards import SPLITS, Manifest, Shard, read_classes, read_manifest
from cala.errors import InputError
from cala.files import sha256, shown
from cala.heads.checks import check_features
from cala.registry import check_choice

BLOCK = 65_536
SPARSE = 4  # read a whole stretch of a file where at least one in so many of its rows is wanted


@dataclass(frozen=True)
class Part:
    """An open shard: where it lies, and where its members lie in it."""

    path: Path
    entry: Shard
    members: dict[str, Member]

    def read(self, member: str) -> Array:
        return read_rows(self.path, self.members[member], 0, self.members[member].shape[0])


class Shards:
    """A folder of shards, opened: nothing but headers has been read.

    classes : class names by label
    """

    def __init__(self, folder: Path, manifest: Manifest, classes: tuple[str, ...]) -> None:
        self.folder, self.manifest, self.classes = folder, manifest, classes
        self._parts = {
            split: tuple(self._open(s) for s in manifest.shards if s.split == split)
            for split in SPLITS
        }

    def _open(self, entry: Shard) -> Part:
        path = self.folder / entry.file
        members = read_header(path, entry.rows, self.manifest.dim, self.manifest.dtype)
        size = path.stat().st_size
        if size != entry.bytes:
            raise damaged(path, f"it has {size:,} bytes, the manifest says {entry.bytes:,}")
        if entry.split == "fake" and "pairs" not in members:
            raise damaged(path, "it lacks pairs")
        return Part(path, entry, members)

    @property
    def dim(self) -> int:
        return self.manifest.dim

    def parts(self, split: str) -> tuple[Part, ...]:
        check_choice("split", split, SPLITS)
        return self._parts[split]

    def rows(self, split: str) -> int:
        """How many rows a split has."""
        return sum(part.entry.rows for part in self.parts(split))

    def features(self, split: str) -> ShardRows:
        """The embeddings of a split, read as they are asked for."""
        return ShardRows(self.parts(split), self.dim)

    def labels(self, split: str) -> Array:
        """(n,) labels of a split: 8 bytes per row, the one thing kept of every row."""
        found = np.empty(self.rows(split), dtype=np.int64)
        start = 0
        for part in self.parts(split):
            y = part.read("y")
            if split != "fake":
                _check_labels(part, y, len(self.classes))
            found[start : start + len(y)] = y
            start += len(y)
        return found

    def holdout(self) -> Array | None:
        """(n,) bool, training rows that the encoder never saw; None where no shard says so."""
        parts = self.parts("train")
        if not any("holdout" in part.members for part in parts):
            return None
        masks = [
            part.read("holdout").astype(bool)
            if "holdout" in part.members
            else np.zeros(part.entry.rows, dtype=bool)
            for part in parts
        ]
        mask = np.concatenate(masks)
        return mask if mask.any() else None

    def names(self, split: str) -> Iterator[str]:
        """Image names in the order of the rows, a shard at a time; empty where none were kept."""
        for part in self.parts(split):
            if "names" not in part.members or "name_ends" not in part.members:
                yield from ("" for _ in range(part.entry.rows))
                continue
            text, ends = part.read("names").tobytes(), part.read("name_ends").tolist()
            starts = [0, *ends[:-1]]
            if any(a > b for a, b in zip(starts, ends, strict=True)) or ends[-1] != len(text):
                raise damaged(part.path, "its names do not fit their ends")
            for a, b in zip(starts, ends, strict=True):
                yield text[a:b].decode("utf-8", "surrogateescape")

    def blocks(self, split: str, rows: int = BLOCK) -> Iterator[tuple[Array, Array]]:
        """Embeddings (b, d) float32 and labels (b,), at most `rows` at a time, in order."""
        if rows < 1:
            raise InputError(f"rows is {rows}: give at least 1")
        for part in self.parts(split):
            y = part.read("y")
            if split != "fake":
                _check_labels(part, y, len(self.classes))
            x = ShardRows((part,), self.dim)
            for start in range(0, len(y), rows):
                yield x[start : start + rows], y[start : start + rows]

    def fakes(self) -> FakePool | None:
        """The pool of fake classes, in memory: it does not grow with the rows."""
        if not self.parts("fake"):
            return None
        x, y = self.features("fake")[:], self.labels("fake")
        pairs = np.concatenate([p.read("pairs") for p in self.parts("fake")])
        if (y < 0).any() or (y >= len(y)).any():
            raise damaged(self.parts("fake")[0].path, "its fake classes are not numbered from 0")
        if (pairs < 0).any() or (pairs >= len(self.classes)).any():
            raise damaged(
                self.parts("fake")[0].path, "a fake class mixes classes that are not there"
            )
        counts = np.bincount(y)
        order = np.argsort(y, kind="stable")
        each = int(counts[0])
        pairs = pairs[order].reshape(len(counts), -1, 2) if each * len(counts) == len(y) else pairs
        first = self.parts("fake")[0].path
        if pairs.ndim != 3 or int(counts.min()) != each:
            raise damaged(first, "fake classes must be numbered from 0, with as many images each")
        if not (pairs == pairs[:, :1]).all():
            raise damaged(first, "a fake class mixes different pairs")
        return FakePool(x[order].reshape(len(counts), each, self.dim), pairs[:, 0].copy())

    def verify(self, advance: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Read every byte and compare checksums; a shard that differs is named."""
        total, done = sum(s.bytes for s in self.manifest.shards), 0
        for parts in self._parts.values():
            for part in parts:
                if sha256(part.path) != part.entry.sha256:
                    raise damaged(part.path, "its checksum is not the manifest's")
                done += part.entry.bytes
                advance(done, total)


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
            if self._chosen is None and step == 1:
                return self._stretch(start, max(start, stop))
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

    def _stretch(self, start: int, stop: int) -> Array:
        """Rows start..stop-1 of all shards, which lie side by side."""
        if stop <= start:
            return np.empty((0, self.shape[1]), self.dtype)
        found = []
        for number in range(*self._span(start, stop)):
            first, last = self._starts[number], self._starts[number + 1]
            low, high = max(start, first) - first, min(stop, last) - first
            found.append(self._read(number, int(low), int(high)))
        return np.concatenate(found) if len(found) != 1 else found[0]

    def _span(self, start: int, stop: int) -> tuple[int, int]:
        """The first shard that holds rows start..stop-1, and the one behind the last."""
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        return first, int(np.searchsorted(self._starts, stop, side="left"))

    def _gather(self, rows: Array) -> Array:
        """Rows in any order: every shard is opened once, and read from its start to its end."""
        result = np.empty((len(rows), self.shape[1]), self.dtype)
        ordered = bool((rows[1:] >= rows[:-1]).all())
        order = np.arange(len(rows)) if ordered else np.argsort(rows, kind="stable")
        bounds = np.searchsorted(rows[order], self._starts)
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            places = order[bounds[number] : bounds[number + 1]]
            local = rows[places] - self._starts[number]
            low, high = int(local[0]), int(local[-1]) + 1
            if high - low <= SPARSE * len(local):
                values = self._read(number, low, high)[local - low]
            else:
                part = self._parts[number]
                mapped = map_member(part.path, part.members["x"])
                values = self._checked(number, mapped[local])
                del mapped  # its pages count as this process's memory
            result[places] = values
        return result

    def _read(self, number: int, low: int, high: int) -> Array:
        part = self._parts[number]
        return self._checked(number, read_rows(part.path, part.members["x"], low, high))

    def _checked(self, number: int, rows: Array) -> Array:
        try:
            return check_features(rows)
        except InputError as error:
            raise damaged(self._parts[number].path, str(error)) from error


def open_shards(folder: str | Path) -> Shards:
    """Open a folder of shards; a file that is missing, cut short or of another shape is named."""
    folder = Path(folder).absolute()  # other processes may work in another folder
    manifest = read_manifest(folder)
    if not manifest.complete:
        left = manifest.missing
        some = f", such as {shown(left[0])}" if left else ""
        count = f"{len(left):,} of its parts are missing{some}" if left else "it is not finished"
        raise InputError(
            f"{shown(folder)} is not complete ({count}): run the command that writes it again, "
            "and it goes on where it stopped"
        )
    return Shards(folder, manifest, read_classes(folder, manifest.classes))


def _check_labels(part: Part, labels: Array, classes: int) -> None:
    bad = labels[(labels < 0) | (labels >= classes)]
    if len(bad):
        raise damaged(part.path, f"y holds {int(bad[0])}: labels lie in 0..{classes - 1}")
