"""A folder of embeddings in shards, and the manifest that says what it holds.

    NAME.shards/
      manifest.json            rows, dimension, provenance, and each shard's size and checksum
      classes.json             class names by label
      shard-00000.safetensors  x (n, d), y (n,) and, where known, names, holdout, pairs
      …

A shard is written whole or not at all, and so is the manifest after it: whatever the manifest
names is complete. Files of earlier versions have the same layout and are read as well.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cala import storage
from cala.errors import DamagedFile, InputError
from cala.files import read_whole, reason, shown

SHARDS_SUFFIX = ".shards"
MANIFEST, CLASSES = "manifest.json", "classes.json"
SHARD_SPLITS = ("train", "test", "fake")
SHARD_DTYPES = ("float16", "float32")


@dataclass(frozen=True)
class Shard:
    """One file of a folder.

    key : the work unit that made it, where there is one; a resumed writer knows it again
    split : `train`, `test` or `fake`
    """

    file: str
    split: str
    rows: int
    bytes: int
    sha256: str
    key: str | None = None


@dataclass(frozen=True)
class Manifest:
    """What a folder holds.

    classes : how many; their names are in `classes.json`
    expected : keys of all work units, where they were known beforehand
    complete : the writer has finished; until then some shards may be missing
    """

    dim: int
    dtype: str
    classes: int
    provenance: dict[str, Any] = field(default_factory=dict)
    scale: float | None = None
    expected: tuple[str, ...] = ()
    shards: tuple[Shard, ...] = ()
    complete: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        """Keys of expected work units that no shard came from, in their order."""
        done = {shard.key for shard in self.shards}
        return tuple(key for key in self.expected if key not in done)

    @property
    def rows(self) -> dict[str, int]:
        """How many rows each split has."""
        counts = {
            split: [s.rows for s in self.shards if s.split == split] for split in SHARD_SPLITS
        }
        return {split: sum(rows) for split, rows in counts.items()}

    def faults(self) -> Iterator[str]:
        """Values that no writer writes."""
        for name in ("dim", "classes"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                yield f"{name} is {value!r}, not a whole number of at least 1"
        if self.dtype not in SHARD_DTYPES:
            yield f"dtype is {self.dtype!r}, not {' or '.join(SHARD_DTYPES)}"
        stated: Any = self.provenance
        scale: Any = self.scale
        if not isinstance(stated, dict):
            yield "provenance is not a JSON object"
        if scale is not None and not (isinstance(scale, int | float) and 0 < scale < math.inf):
            yield f"scale is {scale!r}, not a number above 0"
        for shard in self.shards:
            inside = Path(shard.file).name == shard.file and shard.split in SHARD_SPLITS
            whole = type(shard.rows) is int and type(shard.bytes) is int
            if not (inside and whole and 0 < shard.rows * self.dim <= shard.bytes):
                yield f"shard {shard} has impossible values"
        keys = [shard.key for shard in self.shards if shard.key is not None]
        for names in ([shard.file for shard in self.shards], keys, self.expected):
            if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
                yield "a shard or a work unit has no name, or one that is repeated"
        if not isinstance(self.complete, bool) or (self.complete and self.missing):
            yield "it is marked as complete, but work units are missing"


def is_shards(path: str | Path) -> bool:
    """Whether the name says so.

    >>> is_shards("birds.shards"), is_shards("birds.npz")
    (True, False)
    """
    return Path(path).suffix.lower() == SHARDS_SUFFIX


def write_manifest(folder: Path, manifest: Manifest) -> None:
    storage.write_json(folder / MANIFEST, "shards", {**asdict(manifest), "rows": manifest.rows})


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder, checked."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(
            f"{shown(folder)} is not a folder of shards: it has no {MANIFEST}",
            "check the path, or run `cala encode` again",
            field="path",
            code="missing_file",
        )
    found = storage.read_json(path, "shards")
    rows = found.pop("rows", None)
    try:
        shards = tuple(Shard(**shard) for shard in found.pop("shards"))
        manifest = Manifest(**found | {"shards": shards, "expected": tuple(found["expected"])})
        for fault in manifest.faults():
            raise ValueError(fault)
        if rows != manifest.rows:
            raise ValueError(f"its rows {rows} are not the sum of its shards")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DamagedFile(shown(path), reason(error), storage.AGAIN) from error
    return manifest


def read_classes(folder: Path, count: int) -> tuple[str, ...]:
    """The class names of a folder, by label."""
    path = folder / CLASSES
    try:
        found = json.loads(read_whole(path))
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise ValueError("it is not a JSON list of strings")
        if len(set(found)) != count or len(found) != count:
            raise ValueError(f"it names {len(set(found)):,} classes, the manifest {count:,}")
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedFile(shown(path), reason(error), storage.AGAIN) from error
    return tuple(found)
