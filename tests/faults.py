"""One call to the disk fails, and the next one works again: SQLite's way of testing.

`Faults(folder, n, error)` lets the n-th call that touches `folder` fail, for `open`, `write`,
`fsync`, `replace`, `rename`, `link`, `mkdir`, `unlink` and `scandir`, for what files opened by
Python write, and for what compiled code does: safetensors when it writes or opens a file, SQLite
when it opens a database or runs a statement. Paths elsewhere are left alone.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.numpy

ERRORS = ("ENOSPC", "EIO", "EMFILE", "EACCES")
SHORT = "short"  # the first half of a write is done; the call says so
ON_PATHS = ("open", "replace", "rename", "link", "mkdir", "unlink", "remove", "rmdir", "scandir")
SQLITE = {
    "ENOSPC": "database or disk is full",
    "EIO": "disk I/O error",
    "EMFILE": "unable to open database file",
    "EACCES": "attempt to write a readonly database",
}


class Faults:
    """error : a name of `errno`, or `SHORT`; failed : the call that did, empty if none was left"""

    def __init__(self, folder: Path, last: int, error: str) -> None:
        self.folder, self.left, self.error = os.path.realpath(folder), last, error
        self.failed = ""
        self._mine: set[int] = set()

    def __enter__(self) -> Faults:
        self._patch = pytest.MonkeyPatch()
        self._real_open, self._real_connect = io.open, sqlite3.connect
        for name in ON_PATHS:
            self._patch.setattr(os, name, self._by_path(name, getattr(os, name)))
        for name in ("write", "fsync"):
            self._patch.setattr(os, name, self._by_descriptor(name, getattr(os, name)))
        self._patch.setattr(io, "open", self._open)
        self._patch.setattr(builtins, "open", self._open)
        save, safe_open = safetensors.numpy.save_file, safetensors.safe_open
        self._patch.setattr(safetensors.numpy, "save_file", self._saving(save))
        self._patch.setattr(safetensors, "safe_open", self._by_path("safe_open", safe_open))
        self._patch.setattr(sqlite3, "connect", self._connect)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def _due(self, name: str) -> bool:
        """Whether this call is the one to fail."""
        if self.failed or (self.error == SHORT and name != "write"):
            return False
        self.left -= 1
        if self.left >= 0:
            return False
        self.failed = name
        return True

    def _raised(self, *path: str) -> OSError:
        number = getattr(errno, self.error)
        return OSError(number, os.strerror(number), *path)

    def _within(self, path: object) -> bool:
        if isinstance(path, int):
            return False
        try:
            return os.path.abspath(os.fsdecode(path)).startswith(self.folder)
        except TypeError:
            return False

    def _by_path(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            mine = bool(given) and self._within(given[0])
            if mine and self._due(name):
                raise self._raised(os.fsdecode(given[0]))
            found = real(*given, **named)
            if mine and name == "open":
                self._mine.add(found)
            return found

        return call

    def _by_descriptor(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(descriptor: int, *given: Any) -> Any:
            if descriptor not in self._mine or not self._due(name):
                return real(descriptor, *given)
            if self.error == SHORT:
                return real(descriptor, bytes(given[0])[: max(1, len(given[0]) // 2)])
            raise self._raised()

        return call

    def _open(self, file: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
        """`open` of a file below the folder; what is written to it goes through `_Raw`."""
        if not self._within(file):
            return self._real_open(file, mode, *given, **named)
        if self._due("open"):
            raise self._raised(os.fsdecode(file))
        if not set(mode) & set("wax+"):
            found = self._real_open(file, mode, *given, **named)
            self._mine.add(found.fileno())
            return found
        raw = _Raw(file, mode.replace("b", "").replace("t", ""), self)
        self._mine.add(raw.fileno())
        kind = io.BufferedRandom if "+" in mode else io.BufferedWriter
        if "b" in mode:
            return kind(raw)
        told = dict(zip(("buffering", "encoding", "errors", "newline"), given, strict=False))
        told = {name: value for name, value in {**told, **named}.items() if name != "buffering"}
        return io.TextIOWrapper(kind(raw), **told)

    def _saving(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def save(arrays: Any, path: Any, metadata: Any = None) -> None:
            real(arrays, path, metadata)
            if self._within(path) and self.error != SHORT and self._due("save_file"):
                os.truncate(path, os.path.getsize(path) // 2)  # as far as it came
                raise safetensors.SafetensorError(f"I/O error: {os.strerror(errno.ENOSPC)}")

        return save

    def _connect(self, path: Any, **named: Any) -> sqlite3.Connection:
        if not self._within(path) or self.error == SHORT:
            return self._real_connect(path, **named)
        if self._due("connect"):
            raise sqlite3.OperationalError("unable to open database file")
        faults = self

        class Connection(sqlite3.Connection):
            def execute(self, *given: Any) -> Any:
                if faults._due("execute"):
                    raise sqlite3.OperationalError(SQLITE[faults.error])
                return super().execute(*given)

            def executemany(self, *given: Any) -> Any:
                if faults._due("execute"):
                    raise sqlite3.OperationalError(SQLITE[faults.error])
                return super().executemany(*given)

        return self._real_connect(path, factory=Connection, **named)


class _Raw(io.FileIO):
    """A file whose writes may fail, or be short."""

    def __init__(self, file: Any, mode: str, faults: Faults) -> None:
        super().__init__(file, mode)
        self._faults = faults

    def write(self, data: Any) -> int:
        if self._faults._due("write"):
            if self._faults.error != SHORT:
                raise self._faults._raised()
            data = bytes(data)[: max(1, len(data) // 2)]
        return super().write(data)
