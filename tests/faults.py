"""One call to the disk fails, and the next one works again: SQLite's way of testing.

`Faults(folder, n, error)` lets the n-th call that touches `folder` fail, for `open`, `write`,
`fsync`, `replace`, `rename`, `link`, `mkdir`, `unlink` and `scandir`. Paths elsewhere are left
alone. What is written by compiled code (safetensors, SQLite) is seen only where it opens nothing
itself.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ERRORS = ("ENOSPC", "EIO", "EMFILE", "EACCES")
SHORT = "short"  # the first half of a write is done; the call says so
ON_PATHS = ("open", "replace", "rename", "link", "mkdir", "unlink", "remove", "rmdir", "scandir")


class Faults:
    """error : a name of `errno`, or `SHORT`; failed : the call that did, empty if none was left"""

    def __init__(self, folder: Path, last: int, error: str) -> None:
        self.folder, self.left, self.error = os.path.realpath(folder), last, error
        self.failed = ""
        self._mine: set[int] = set()

    def __enter__(self) -> Faults:
        self._patch = pytest.MonkeyPatch()
        for name in ON_PATHS:
            self._patch.setattr(os, name, self._by_path(name, getattr(os, name)))
        for name in ("write", "fsync"):
            self._patch.setattr(os, name, self._by_descriptor(name, getattr(os, name)))
        opened = self._by_path("open", io.open)
        self._patch.setattr(io, "open", opened)
        self._patch.setattr(builtins, "open", opened)
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
                number = getattr(errno, self.error)
                raise OSError(number, os.strerror(number), os.fsdecode(given[0]))
            found = real(*given, **named)
            if mine and name == "open":
                self._mine.add(found if isinstance(found, int) else found.fileno())
            return found

        return call

    def _by_descriptor(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(descriptor: int, *given: Any) -> Any:
            if descriptor not in self._mine or not self._due(name):
                return real(descriptor, *given)
            if self.error == SHORT:
                return real(descriptor, bytes(given[0])[: max(1, len(given[0]) // 2)])
            number = getattr(errno, self.error)
            raise OSError(number, os.strerror(number))

        return call
