"""Writing embeddings shard by shard, and resuming where a writer was stopped."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Self

from cala import storage
from cala.core.rows import Array
from cala.data.embedding_files import MemberChecks, provenance_text
from cala.data.shards import (
    CLASSES,
    MANIFEST,
    SHARD_DTYPES,
    SHARD_SPLITS,
    SHARDS_SUFFIX,
    Manifest,
    Shard,
    is_shards,
    read_classes,
    read_manifest,
    write_manifest,
)
from cala.errors import InputError
from cala.files import preview, reason, sha256, shown, write_text
from cala.registry import check_choice

OWN_SHARDS = re.compile(r"shard-\d{5,}\.safetensors|\.[\w.-]+\.[0-9a-f]{16}\.tmp")
_SAME = ("encoder", "fingerprint", "transform", "tta", "images", "base", "fakes")
"""Entries of the provenance that all shards of a folder must share."""


class ShardWriter:
    """Writes a folder of shards, or resumes one; one process at a time holds it.

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
            raise InputError(
                f"{shown(folder)} does not end in {SHARDS_SUFFIX}", "rename it", field="path"
            )
        check_choice("dtype", dtype, SHARD_DTYPES)
        names = tuple(classes)
        if len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
            detail = f"class names are {preview(map(repr, names), 5)}"
            raise InputError(detail, "give distinct strings", field="classes")
        stated = json.loads(provenance_text(provenance or {}))  # as it will be read again
        wanted = Manifest(dim, dtype, len(names), stated, scale, tuple(keys))
        for fault in wanted.faults():
            detail = f"no folder of shards can be made: {fault}"
            raise InputError(detail, code="bad_manifest")
        self._held = ExitStack()
        self._held.enter_context(storage.locked_folder(self.folder))
        try:
            self.manifest = self._resumed(wanted, names)
            self._enter(self.manifest)
            self._sweep()
            numbered = enumerate(self.manifest.expected)
            self._places: dict[str | None, int] = {key: number for number, key in numbered}
            self._open = True
        except BaseException:
            self.close()
            raise

    def _resumed(self, wanted: Manifest, names: tuple[str, ...]) -> Manifest:
        """The intact part of an existing folder; a folder of something else is refused."""
        if not (self.folder / MANIFEST).exists():
            try:
                write_text(self.folder / CLASSES, json.dumps(names))
            except OSError as error:
                raise storage.not_written(self.folder / CLASSES, error) from error
            return wanted
        found = read_manifest(self.folder)
        same = {n: (getattr(found, n), getattr(wanted, n)) for n in ("dim", "dtype", "scale")}
        same["classes"] = (read_classes(self.folder, found.classes), names)
        for name in _SAME:
            same[name] = (found.provenance.get(name), wanted.provenance.get(name))
        for name, (old, new) in same.items():
            if old != new:
                short = len(f"{old}{new}") < 100
                what = f"{name} {old}, not {new}" if short else f"other {name}"
                if name == "images":
                    what = "other images: names, classes, file sizes or --test differ"
                raise self._other(what, name)
        known = {shard.key for shard in found.shards if shard.key is not None}
        if wanted.expected and not known <= set(wanted.expected):
            odd = sorted(known - set(wanted.expected))[0]
            raise self._other(
                f"the work unit {odd!r}, which is not one now: shards of another size "
                "(--shard-rows), or other images",
                "keys",
            )
        return replace(
            wanted,
            shards=tuple(shard for shard in found.shards if self._is_whole(shard)),
            provenance=found.provenance,
            expected=wanted.expected or found.expected,
        )

    def _other(self, what: str, field: str) -> InputError:
        return InputError(
            f"{shown(self.folder)} was begun with {shown(what)}",
            "use the same settings, choose another name, or delete it",
            field=field,
            code="other_folder",
        )

    def _is_whole(self, shard: Shard) -> bool:
        path = self.folder / shard.file
        return path.is_file() and sha256(path) == shard.sha256

    def _sweep(self) -> None:
        """Delete shards and parts of shards that a killed writer had not entered yet."""
        kept = {shard.file for shard in self.manifest.shards}
        for path in self.folder.iterdir():
            if OWN_SHARDS.fullmatch(path.name) and path.name not in kept:
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
        if not self._open:
            detail = f"{shown(self.folder)} was closed"
            raise InputError(detail, "open another ShardWriter for it", code="closed")
        if key in self.done:
            raise InputError(f"{shown(self.folder)} has {shown(key)!r} already", field="key")
        if key is not None and self._places and key not in self._places:
            detail = f"{shown(key)!r} is not a work unit of {shown(self.folder)}"
            raise InputError(detail, field="key")
        check_choice("split", split, SHARD_SPLITS)
        members = self._members(split, x, y, names, holdout, pairs)
        path = self.folder / self._file(key)
        storage.write(path, "shard", {}, members)
        rows, size = len(members["y"]), path.stat().st_size
        entry = Shard(path.name, split, rows, size, sha256(path), key)
        last = len(self._places)
        shards = sorted((*self.manifest.shards, entry), key=lambda s: self._places.get(s.key, last))
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

    def _members(
        self, split: str, x: Any, y: Any, names: Sequence[str] | None, holdout: Any, pairs: Any
    ) -> dict[str, Array]:
        given = {"x": x, "y": y, "holdout": holdout, "pairs": pairs}
        arrays = {name: np.asarray(values) for name, values in given.items() if values is not None}
        check = MemberChecks(shown(self.folder), arrays)
        classes, dtype = self.manifest.classes, self.manifest.dtype
        with np.errstate(over="ignore"):
            stored = check.reals("x", ("n", self.manifest.dim)).astype(dtype)
        n = len(stored)
        for row in np.flatnonzero(~np.isfinite(stored).all(1) | ~stored.any(1))[:1].tolist():
            named = f" ({shown(names[row])})" if names is not None and len(names) == n else ""
            why = f"row {row}{named} is all zero, or has a number too large for {dtype}"
            check.fail("x", why, "leave it out, or store float32")
        most = np.iinfo(np.int64).max if split == "fake" else classes
        members = {"x": stored, "y": check.integers("y", (n,), most)}
        if names is not None:
            members |= _packed(names, n)
        if holdout is not None:
            members["holdout"] = check.array("holdout", "b", "bool", (n,)).astype(np.uint8)
        if (pairs is None) != (split != "fake"):
            check.fail("pairs", "must be given for split fake, and for no other")
        if pairs is not None:
            members["pairs"] = check.integers("pairs", (n, 2), classes)
        return members

    def finish(self) -> Path:
        """Say that all is there; what is missing is named."""
        if self.missing:
            detail = f"{shown(self.folder)} is not complete, {preview(self.missing, 5)} missing"
            raise InputError(detail, "write them first", code="incomplete")
        self._enter(replace(self.manifest, complete=True))
        self.close()
        return self.folder

    def _enter(self, manifest: Manifest) -> None:
        write_manifest(self.folder, manifest)
        self.manifest = manifest

    def close(self) -> None:
        """Let another process write."""
        self._open = False
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _packed(names: Sequence[str], n: int) -> dict[str, Array]:
    """Names as the bytes of all of them, and where each one ends."""
    try:
        texts = [name.encode("utf-8", "surrogateescape") for name in names]
    except (AttributeError, UnicodeEncodeError) as error:
        detail = f"a name cannot be written ({reason(error)})"
        raise InputError(detail, "give strings", field="names") from error
    if len(texts) != n:
        raise InputError(f"{len(texts)} names for {n} rows", "give one per row", field="names")
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return {"names": np.frombuffer(b"".join(texts), dtype=np.uint8), "name_ends": ends}
