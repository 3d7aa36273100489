"""What a disk may hold after a power cut: writes that were not flushed may be lost, in any order.

`Recorder(folder)` notes every change below a folder, and which of them were flushed: the content
of a file by `fsync` of it, names by `fsync` of their folder. `cut` then writes a folder as a cut at
a given moment may leave it: each name and each file's content is, independently, any of those that
it has had since its last flush. Files are taken to be written from their beginning to their end.
"""

from __future__ import annotations

import builtins
import copy
import io
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy

FOLDER = "folder"  # what a name stands for, if not for a file
RECORDED = ("replace", "rename", "link", "mkdir", "unlink", "remove", "rmdir")


class Content:
    """What a file has held since its last flush, the newest last."""

    def __init__(self, data: bytes = b"") -> None:
        self.states = [data]


class Recorder:
    """names : path -> what it has stood for since the last flush of its folder; None for nothing"""

    def __init__(self, folder: Path) -> None:
        self.folder = os.path.realpath(folder)
        self.names: dict[str, list[Any]] = {}
        self.moments: list[dict[str, list[Any]]] = []
        self._open_files: dict[int, Any] = {}
        for path in sorted(Path(self.folder).rglob("*")):
            self.names[str(path)] = [FOLDER if path.is_dir() else Content(path.read_bytes())]

    def __enter__(self) -> Recorder:
        self._patch = pytest.MonkeyPatch()
        self._real = {name: getattr(os, name) for name in ("open", "write", "fsync", *RECORDED)}
        self._real_open, self._save = io.open, safetensors.numpy.save_file
        for name in RECORDED:
            self._patch.setattr(os, name, self._renaming(name))
        for name in ("open", "write", "fsync"):
            self._patch.setattr(os, name, getattr(self, f"_{name}"))
        self._patch.setattr(io, "open", self._open_file)
        self._patch.setattr(builtins, "open", self._open_file)
        self._patch.setattr(safetensors.numpy, "save_file", self._save_file)
        self._step()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def _step(self) -> None:
        self.moments.append(copy.deepcopy(self.names))

    def _place(self, path: Any) -> str:
        """A path below the folder; empty for any other."""
        found = "" if isinstance(path, int) else os.path.abspath(os.fsdecode(path))
        return found if found.startswith(self.folder) else ""

    def _now(self, place: str) -> Any:
        return self.names.get(place, [None])[-1]

    def _set(self, place: str, what: Any) -> None:
        if place:
            self.names.setdefault(place, [None]).append(what)

    def _opened(self, path: Any, descriptor: int, truncated: bool) -> Any:
        place = self._place(path)
        if not place:
            return None
        if os.path.isdir(place):
            self._open_files[descriptor] = place
            return place
        if not isinstance(self._now(place), Content):
            self._set(place, Content())
            self._step()
        elif truncated:
            self._now(place).states.append(b"")
        self._open_files[descriptor] = self._now(place)
        return self._now(place)

    def _open(self, path: Any, flags: int, *given: Any, **named: Any) -> int:
        descriptor = self._real["open"](path, flags, *given, **named)
        self._open_files.pop(descriptor, None)
        self._opened(path, descriptor, bool(flags & os.O_TRUNC))
        return descriptor

    def _write(self, descriptor: int, data: Any) -> int:
        count = self._real["write"](descriptor, data)
        self._written(self._open_files.get(descriptor), bytes(data)[:count])
        return count

    def _written(self, content: Any, data: bytes) -> None:
        if isinstance(content, Content):
            content.states.append(content.states[-1] + data)
            self._step()

    def _fsync(self, descriptor: int) -> None:
        self._real["fsync"](descriptor)
        found = self._open_files.get(descriptor)
        if isinstance(found, Content):
            found.states[:-1] = []
        elif found is not None:
            for place, states in self.names.items():
                if os.path.dirname(place) == found:
                    states[:-1] = []
        self._step()

    def _open_file(self, file: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
        if not self._place(file) or not set(mode) & set("wax+"):
            found = self._real_open(file, mode, *given, **named)
            self._open_files.pop(found.fileno(), None)
            if self._place(file):
                self._opened(file, found.fileno(), False)
            return found
        raw = _Raw(file, mode.replace("b", "").replace("t", ""), self._written)
        raw.content = self._opened(file, raw.fileno(), "w" in mode)
        if "b" in mode:
            return io.BufferedWriter(raw)
        return io.TextIOWrapper(io.BufferedWriter(raw), named.get("encoding", "utf-8"))

    def _save_file(self, arrays: Any, path: Any, metadata: Any = None) -> None:
        self._save(arrays, path, metadata)
        content = self._now(self._place(path))
        content.states += [b"", Path(path).read_bytes()]
        self._step()

    def _renaming(self, name: str) -> Callable[..., Any]:
        def call(first: Any, *given: Any, **named: Any) -> Any:
            found = self._real[name](first, *given, **named)
            source = self._place(first)
            if name in ("replace", "rename", "link"):
                self._set(self._place(given[0]), self._now(source))
            if name != "link":
                self._set(source, FOLDER if name == "mkdir" else None)
            self._step()
            return found

        return call

    def cut(self, moment: int, seed: int, target: Path) -> None:
        """Write what may be on the disk if the power goes at that moment."""
        draw, chosen = random.Random(f"{moment} {seed}"), {}
        target.mkdir()
        for place, states in sorted(self.moments[moment].items()):
            path, what = target / os.path.relpath(place, self.folder), draw.choice(states)
            if what is None or not path.parent.is_dir():
                continue
            if what == FOLDER:
                path.mkdir()
            else:
                data = chosen.setdefault(id(what), draw.choice(what.states))
                path.write_bytes(data)


class _Raw(io.FileIO):
    """A file that tells what is written to it."""

    content: Any = None

    def __init__(self, file: Any, mode: str, written: Callable[[Any, bytes], None]) -> None:
        super().__init__(file, mode)
        self._tell = written

    def write(self, data: Any) -> int:
        count = super().write(data)
        self._tell(self.content, bytes(data)[:count])
        return count
