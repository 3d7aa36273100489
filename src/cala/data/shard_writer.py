"""Writing embeddings shard by shard, and going on where a writer was stopped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from typing_extensions import Self

from cala.core.rows import Array
from cala.data.shard_file import write_shard
from cala.data.shards import (
    CLASSES,
    DTYPES,
    MANIFEST,
    SPLITS,
    SUFFIX,
    Manifest,
    Shard,
    check_manifest,
    is_shards,
    read_classes,
    read_manifest,
    write_manifest,
)
from cala.errors import InputError
from cala.files import reason, sha256, shown, write_text
from cala.registry import check_choice

SAME = ("encoder", "fingerprint", "transform", "tta", "images", "base", "fakes")
"""Entries of the provenance that all shards of a folder must share."""


class ShardWriter:
    """Writes a folder of shards, or goes on with one; one process at a time holds it.

    classes : class names by label
    provenance : where the numbers come from; `encoder` is its URI, `fingerprint` its checksum
    keys : all work units, where they are known beforehand; `missing` are those still to be done

    >>> from tempfile import mkdtemp
    >>> with ShardWriter(f"{mkdtemp()}/my.shards", dim=2, classes=("a", "b"), keys=("u", "v")) as w:
    ...     w.write("u", np.eye(2), np.array([0, 1]))
    ...     w.missing
    ('v',)
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        dim: int,
        classes: Sequence[str],
        dtype: str = "float16",
        provenance: dict[str, Any] | None = None,
        scale: float | None = None,
        keys: Sequence[str] = (),
    ) -> None:
        self.folder = Path(folder)
        if not is_shards(self.folder):
            raise InputError(f"{shown(folder)}: a folder of shards ends in {SUFFIX}")
        check_choice("dtype", dtype, DTYPES)
        names = tuple(classes)
        if not names or len(set(names)) < len(names):
            raise InputError(f"{len(names)} class names: give at least one, and none twice")
        if not all(isinstance(name, str) for name in (*names, *keys)):
            raise InputError("class names and keys of work units are strings")
        if len(set(keys)) < len(keys):
            raise InputError("two work units have the same key: give each its own")
        try:
            stated = json.loads(json.dumps(provenance or {}))  # as it will be read again
        except (TypeError, ValueError) as error:
            raise InputError(
                f"provenance cannot be written as JSON ({reason(error)}): use plain values"
            ) from error
        wanted = Manifest(dim, dtype, len(names), stated, scale, expected=tuple(keys))
        try:
            check_manifest(wanted)
        except ValueError as error:
            raise InputError(f"no folder of shards can be made: {reason(error)}") from None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self.folder / ".lock")
            self._lock.acquire(timeout=0)
        except Timeout:
            raise InputError(
                f"{shown(folder)} is being written by another process: wait, or choose another name"
            ) from None
        except OSError as error:
            raise InputError(f"{shown(folder)} cannot be written ({reason(error)})") from error
        try:
            self.manifest = self._resumed(wanted, names)
            places = enumerate(self.manifest.expected)
            self._places: dict[str | None, int] = {key: place for place, key in places}
        except BaseException:
            self.close()
            raise

    def _resumed(self, wanted: Manifest, names: tuple[str, ...]) -> Manifest:
        """What is there already and still whole; a folder of something else is refused."""
        if not (self.folder / MANIFEST).exists():
            try:
                write_text(self.folder / CLASSES, json.dumps(names))
            except OSError as error:
                raise InputError(
                    f"{shown(self.folder)} cannot be written ({reason(error)})"
                ) from error
            write_manifest(self.folder, wanted)
            self._sweep(wanted)
            return wanted
        found = read_manifest(self.folder)
        for name in ("dim", "dtype", "classes", "scale"):
            old, new = getattr(found, name), getattr(wanted, name)
            if old != new:
                self._refuse(name, old, new)
        for name in SAME:
            old, new = found.provenance.get(name), wanted.provenance.get(name)
            if old != new:
                self._refuse(name, old, new)
        if read_classes(self.folder, found.classes) != names:
            raise InputError(
                f"{shown(self.folder)} has other class names: choose another name, or delete it"
            )
        known = {shard.key for shard in found.shards if shard.key is not None}
        if wanted.expected and not known <= set(wanted.expected):
            odd = sorted(known - set(wanted.expected))[0]
            raise InputError(
                f"{shown(self.folder)} has a shard of {shown(odd)!r}, which is none of the work "
                "units now: it was begun with shards of another size (--shard-rows), or other "
                "images; use what it was begun with, choose another name, or delete it"
            )
        whole = tuple(shard for shard in found.shards if self._is_whole(shard))
        merged = replace(wanted, shards=whole, provenance=found.provenance, complete=False)
        if not wanted.expected:
            merged = replace(merged, expected=found.expected)
        write_manifest(self.folder, merged)
        self._sweep(merged)
        return merged

    def _refuse(self, name: str, old: object, new: object) -> None:
        if name == "images":
            raise InputError(
                f"{shown(self.folder)} was begun with other images (a name, a class or the size of "
                "a file is another one now), or with another share of them for testing (--test): "
                "choose another name, or delete it"
            )
        raise InputError(
            f"{shown(self.folder)} was begun with {name} {shown(old)}, not {shown(new)}: choose "
            "another name, or delete it"
        )

    def _is_whole(self, shard: Shard) -> bool:
        path = self.folder / shard.file
        same_size = path.is_file() and path.stat().st_size == shard.bytes
        return same_size and sha256(path) == shard.sha256

    def _sweep(self, manifest: Manifest) -> None:
        """Delete shards and parts of shards that a killed writer had not entered yet."""
        kept = {shard.file for shard in manifest.shards}
        for path in [*self.folder.glob("shard-*.safetensors"), *self.folder.glob(".*.tmp")]:
            if path.name not in kept:
                with suppress(OSError):
                    path.unlink()

    @property
    def done(self) -> frozenset[str]:
        """Keys of the shards that are there."""
        return frozenset(s.key for s in self.manifest.shards if s.key is not None)

    @property
    def missing(self) -> tuple[str, ...]:
        """Keys of work units still to be done, in their order."""
        return self.manifest.missing

    def write(
        self,
        key: str | None,
        x: Array,
        y: Array,
        split: str = "train",
        names: Sequence[str] | None = None,
        *,
        holdout: Array | None = None,
        pairs: Array | None = None,
    ) -> None:
        """Write one shard; when this returns it is on the disk, and entered.

        x : (n, d); y : (n,) labels, or for split `fake` the number of the fake class
        holdout : (n,) bool, training rows that the encoder never saw
        pairs : (n, 2) labels of the two classes that a fake row mixes
        """
        if not self._lock.is_locked:
            raise InputError(f"{shown(self.folder)} was closed: open another ShardWriter for it")
        if key is not None and key in self.done:
            raise InputError(f"{shown(self.folder)} has {shown(key)!r} already: write it once")
        if key is not None and self.manifest.expected and key not in self.manifest.expected:
            raise InputError(f"{shown(key)!r} is none of the work units of {shown(self.folder)}")
        check_choice("split", split, SPLITS)
        members = self._members(split, x, y, names, holdout, pairs)
        file = self._file(key)
        path = self.folder / file
        write_shard(path, members)
        entry = Shard(file, split, len(members["y"]), path.stat().st_size, sha256(path), key)
        shards = sorted((*self.manifest.shards, entry), key=self._place)
        self._enter(replace(self.manifest, shards=tuple(shards), complete=False))

    def _file(self, key: str | None) -> str:
        """Named after a work unit's place, so that units done in any order make the same folder.

        Where the list of units was another one before, that name may be taken.
        """
        taken = {shard.file for shard in self.manifest.shards}
        number = self._places.get(key, len(taken))
        while (file := f"shard-{number:05d}.safetensors") in taken:
            number = max(number + 1, len(self._places))
        return file

    def _place(self, shard: Shard) -> int:
        return self._places.get(shard.key, len(self._places))

    def _members(
        self, split: str, x: Any, y: Any, names: Sequence[str] | None, holdout: Any, pairs: Any
    ) -> dict[str, Array]:
        x, labels = np.asarray(x), np.asarray(y)
        if x.ndim != 2 or x.shape[1] != self.manifest.dim or not len(x):
            raise InputError(f"x is {x.shape}, not (n, {self.manifest.dim}) with at least one row")
        if x.dtype.kind not in "fiub":
            raise InputError(f"x is {x.dtype}: give real numbers")
        if labels.shape != (len(x),) or labels.dtype.kind not in "iu":
            raise InputError(
                f"y is {labels.dtype} of shape {labels.shape}: give an integer per row, ({len(x)},)"
            )
        most = np.iinfo(np.int64).max if split == "fake" else self.manifest.classes
        _check_range("y", labels, most)
        with np.errstate(over="ignore"):
            stored = x.astype(self.manifest.dtype)
        if not np.isfinite(stored).all():
            raise InputError(
                f"x contains NaN, infinity or a number too large for {self.manifest.dtype}: remove "
                "those rows, or store float32"
            )
        empty = np.flatnonzero(~stored.any(1))
        if len(empty):
            row = int(empty[0])
            named = f" ({shown(names[row])})" if names is not None and len(names) == len(x) else ""
            raise InputError(
                f"row {row}{named} of x is all zero in {self.manifest.dtype}, which has no "
                "direction: leave it out, or store float32"
            )
        members = {"x": stored, "y": labels.astype(np.int64)}
        if names is not None:
            if len(names) != len(x):
                raise InputError(f"{len(names)} names for {len(x)} rows: give one per row")
            try:
                texts = [name.encode("utf-8", "surrogateescape") for name in names]
            except (AttributeError, UnicodeEncodeError) as error:
                raise InputError(f"a name cannot be written ({reason(error)}): give strings") from (
                    error
                )
            members["names"] = np.frombuffer(b"".join(texts), dtype=np.uint8)
            members["name_ends"] = np.cumsum([len(t) for t in texts], dtype=np.int64)
        if holdout is not None:
            mask = np.asarray(holdout)
            if mask.shape != (len(x),) or mask.dtype != np.bool_:
                raise InputError(f"holdout is {mask.dtype} of shape {mask.shape}: one bool per row")
            members["holdout"] = mask.astype(np.uint8)
        if (pairs is None) != (split != "fake"):
            raise InputError("pairs (n, 2) belong to split fake, and split fake needs them")
        if pairs is not None:
            parents = np.asarray(pairs)
            if parents.shape != (len(x), 2) or parents.dtype.kind not in "iu":
                raise InputError(f"pairs is {parents.dtype} of shape {parents.shape}, not (n, 2)")
            _check_range("pairs", parents, self.manifest.classes)
            members["pairs"] = parents.astype(np.int64)
        return members

    def finish(self) -> Path:
        """Say that all is there; what is missing is named."""
        left = self.missing
        if left:
            raise InputError(f"{shown(self.folder)} is not complete: {_named(left)} missing")
        self._enter(replace(self.manifest, complete=True))
        self.close()
        return self.folder

    def _enter(self, manifest: Manifest) -> None:
        write_manifest(self.folder, manifest)
        self.manifest = manifest

    def close(self) -> None:
        """Let another process write."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _check_range(name: str, values: Array, below: int) -> None:
    bad = values[(values < 0) | (values >= below)]
    if bad.size:
        raise InputError(f"{name} holds {bad.flat[0]}: labels lie in 0..{below - 1}")


def _named(keys: Sequence[str], most: int = 5) -> str:
    more = f" and {len(keys) - most} more" if len(keys) > most else ""
    return (
        ", ".join(shown(key) for key in keys[:most]) + more + (" is" if len(keys) == 1 else " are")
    )
