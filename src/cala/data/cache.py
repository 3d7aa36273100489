"""Arrays that are expensive to make, kept on disk and mapped into memory.

An entry is a folder with `.npy` files and an `info.json` that is written last. It appears in one
step, one process builds it while others wait, and it is built again when it is damaged.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from cala.errors import InputError
from cala.files import cache_folder, crc32, reason, shown, stamp

VERSION = 1

Build = Callable[[Path], dict[str, Any]]


@dataclass(frozen=True)
class Entry:
    """arrays : read-only memory maps by name; info : what `build` returned"""

    arrays: dict[str, NDArray[Any]]
    info: dict[str, Any]


def cached(name: str, key: str, build: Build, source: Path | None = None) -> Entry:
    """The entry for `key`; if there is none, `build(folder)` writes `.npy` files into a folder.

    name : for people who look into the cache; key : a fingerprint of whatever `build` reads
    source : where that lies; what was built from the same place before it changed is removed
    """
    root = cache_folder("images")
    folder = root / f"{name}-{key[:32]}"
    entry = _read(folder)
    if entry is not None:
        return entry
    try:
        with FileLock(f"{folder}.lock"):
            entry = _read(folder)  # another process may have built it in the meantime
            if entry is None:
                origin = None if source is None else os.path.abspath(source)
                entry = _build(folder, build, origin)
                _remove_stale(folder, name, origin)
            return entry
    except OSError as error:
        raise InputError(
            f"the cache entry {shown(folder)} cannot be written ({reason(error)}): free some space "
            "or set CALA_CACHE to another folder"
        ) from error


def _remove_stale(fresh: Path, name: str, source: str | None) -> None:
    """A changed set would otherwise leave gigabytes behind with every change.

    A process that has such an entry open keeps its memory map until it ends.
    """
    for folder in fresh.parent.iterdir():
        key = folder.name.removeprefix(f"{name}-")
        # What goes on after the key is a lock, or an entry that is just being built.
        if source is None or folder == fresh or key == folder.name or not key.isalnum():
            continue
        try:
            content = json.loads((folder / "info.json").read_text("utf-8"))
            if content["source"] == source:
                shutil.rmtree(folder, ignore_errors=True)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # no entry, or one that does not say where it came from


def _build(folder: Path, build: Build, source: str | None) -> Entry:
    fresh = folder.with_name(f"{folder.name}.new")
    # Under the lock, whatever lies here is the rest of a build that was killed.
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    fresh.mkdir()
    try:
        info = build(fresh)
        files = {}
        for path in sorted(fresh.glob("*.npy")):
            with path.open("rb") as written:
                os.fsync(written.fileno())
            files[path.name] = {"crc32": crc32(path), "stamp": stamp(path)}
        content = json.dumps({"version": VERSION, "source": source, "files": files, "info": info})
        (fresh / "info.json").write_text(content, encoding="utf-8")
        os.replace(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    entry = _read(folder)
    if entry is None:
        raise InputError(
            f"the cache entry {shown(folder)} cannot be read back: look at the disk, or set "
            "CALA_CACHE to another folder"
        )
    return entry


def _read(folder: Path) -> Entry | None:
    try:
        content = json.loads((folder / "info.json").read_text("utf-8"))
        if content["version"] != VERSION:
            return None
        arrays = {}
        for name, known in content["files"].items():
            path = folder / name
            # Reading every byte again is only worth it when the file was touched.
            if stamp(path) != known["stamp"] and crc32(path) != known["crc32"]:
                return None
            arrays[path.stem] = np.load(path, mmap_mode="r", allow_pickle=False)
        return Entry(arrays, content["info"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError):
        return None
