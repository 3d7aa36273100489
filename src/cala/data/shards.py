"""A folder of embeddings in shards: what is in it, and the manifest that says so.

    NAME.shards/
      manifest.json            rows, dimension, provenance, and each shard's size and checksum
      classes.json             class names by label
      shard-00000.safetensors  x (n, d), y (n,) and, where known, names, holdout, pairs
      …

A shard is written whole or not at all, and so is the manifest after it: whatever the manifest
names is complete. No pickle anywhere.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cala.errors import InputError
from cala.files import reason, shown, write_text

SUFFIX = ".shards"
MANIFEST, CLASSES = "manifest.json", "classes.json"
SCHEMA = 1
SPLITS = ("train", "test", "fake")
DTYPES = ("float16", "float32")


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

    def rows(self, split: str) -> int:
        return sum(shard.rows for shard in self.shards if shard.split == split)


def is_shards(path: str | Path) -> bool:
    """Whether the name says so.

    >>> is_shards("birds.shards"), is_shards("birds.npz")
    (True, False)
    """
    return Path(path).suffix.lower() == SUFFIX


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it in one step."""
    values = {"schema": SCHEMA, **asdict(manifest)}
    values["rows"] = {split: manifest.rows(split) for split in SPLITS}
    try:
        write_text(folder / MANIFEST, json.dumps(values, indent=1) + "\n")
    except OSError as error:
        raise InputError(f"{shown(folder)} cannot be written ({reason(error)})") from error


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder; what does not fit is named."""
    path = folder / MANIFEST
    if not folder.is_dir():
        raise InputError(f"no folder of shards at {shown(folder)}: check the path")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{shown(folder)} has no {MANIFEST}: it is no folder of shards, or its writer was "
            "stopped before the first one; run `cala encode` again"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, reason(error)) from error
    if not isinstance(found, dict):
        raise _damaged(path, "it is no JSON object")
    schema = found.pop("schema", None)
    if isinstance(schema, int) and schema > SCHEMA:
        raise InputError(
            f"{shown(path)} was written by a newer cala (schema {schema}, this one reads {SCHEMA}):"
            " use that one"
        )
    if schema != SCHEMA:
        raise _damaged(path, f"its schema is {schema!r}, not {SCHEMA}")
    rows = found.pop("rows", None)
    try:
        shards = tuple(Shard(**shard) for shard in found.pop("shards"))
        expected = tuple(found.pop("expected"))
        manifest = Manifest(**found, shards=shards, expected=expected)
        check_manifest(manifest)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _damaged(path, reason(error)) from error
    if rows != {split: manifest.rows(split) for split in SPLITS}:
        raise _damaged(path, f"its rows {rows} are not the sum of its shards")
    return manifest


def check_manifest(manifest: Manifest) -> None:
    """Raise ValueError for values that no writer writes."""
    for name in ("dim", "classes"):
        value = getattr(manifest, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} is {value!r}, no whole number from 1 on")
    if manifest.dtype not in DTYPES:
        raise ValueError(f"dtype is {manifest.dtype!r}, not {' or '.join(DTYPES)}")
    if not isinstance(manifest.provenance, dict):
        raise ValueError("provenance is no JSON object")
    for shard in manifest.shards:
        if Path(shard.file).name != shard.file or shard.split not in SPLITS:
            raise ValueError(f"it names a shard {shard.file!r} of split {shard.split!r}")
        if not all(isinstance(n, int) and n > 0 for n in (shard.rows, shard.bytes)):
            raise ValueError(f"{shard.file} has {shard.rows!r} rows in {shard.bytes!r} bytes")
        if shard.rows * manifest.dim > shard.bytes:
            raise ValueError(f"{shard.file} has {shard.rows:,} rows in {shard.bytes:,} bytes")
    files = [shard.file for shard in manifest.shards]
    keys = [shard.key for shard in manifest.shards if shard.key is not None]
    if not all(isinstance(key, str) for key in (*keys, *manifest.expected)):
        raise ValueError("a work unit has no name")
    if any(len(set(names)) < len(names) for names in (files, keys, manifest.expected)):
        raise ValueError("it names a shard or a work unit twice")
    scale = manifest.scale
    if scale is not None and not (isinstance(scale, int | float) and 0 < scale < math.inf):
        raise ValueError(f"scale is {scale!r}, no number above 0")
    if not isinstance(manifest.complete, bool) or (manifest.complete and manifest.missing):
        raise ValueError("it says that it is complete, and work units are missing")


def read_classes(folder: Path, count: int) -> tuple[str, ...]:
    """The class names of a folder, by label."""
    path = folder / CLASSES
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, reason(error)) from error
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise _damaged(path, "it is no JSON list of strings")
    if len(set(found)) < len(found):
        raise _damaged(path, "it names a class twice")
    if len(found) != count:
        raise _damaged(path, f"it names {len(found):,} classes, the manifest {count:,}")
    return tuple(found)


def _damaged(path: Path, why: str) -> InputError:
    return InputError(
        f"{shown(path)} cannot be used ({why}): put back a copy of it, or make the folder again"
    )
