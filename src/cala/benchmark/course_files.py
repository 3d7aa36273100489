"""Courses on disk: a session that trains an encoder takes minutes, so none is played twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cala import storage
from cala.benchmark.courses import Classroom, Course
from cala.benchmark.sources import Source, host_of
from cala.data.protocol import Protocol, ShotDraw
from cala.errors import InputError
from cala.files import clear_leftovers
from cala.heads import HEADS, Head


class Courses:
    """The courses of a run, by host, draw and seed; played when first asked for."""

    def __init__(self, folder: Path | None, full: bool) -> None:
        self.folder, self.full = folder, full
        self._room: tuple[tuple[str, int], Classroom] | None = None  # the last one: it is large
        self._kept: dict[tuple[str, str, int], Course] = {}

    def of(
        self,
        method: str,
        head: Head,
        source: Source,
        protocol: Protocol,
        draw: ShotDraw,
        seed: int,
        progress: Callable[[int], None] = lambda session: None,
    ) -> Course | None:
        """The course of a method's host; None where the encoder stays as it is."""
        host = host_of(method)
        if not HEADS[host].traits.changes_encoder:
            return None
        found = self.find(host, draw.name, seed)
        if found is None:
            if self._room is None or self._room[0] != (host, seed):
                room = Classroom(host, head, source, protocol, seed, self.full)
                self._room = (host, seed), room
            found = self._room[1].play(draw, progress)
            self.keep(host, draw.name, seed, found)
        return found

    def find(self, host: str, draw: str, seed: int) -> Course | None:
        """A course that was played before; None if it was not."""
        key = (host, draw, seed)
        return self._kept.get(key) or self._read(key)

    def keep(self, host: str, draw: str, seed: int, course: Course) -> None:
        key = (host, draw, seed)
        self._write(key, course)
        if self.folder is None:
            self._kept[key] = course

    def _path(self, key: tuple[str, str, int]) -> Path | None:
        if self.folder is None:
            return None
        host, draw, seed = key
        return self.folder / f"{host}-{draw.replace(':', '-')}-{seed}.safetensors"

    def _read(self, key: tuple[str, str, int]) -> Course | None:
        path = self._path(key)
        if path is None or not path.exists():
            return None
        try:
            meta, arrays = storage.read(path, "session")
            logits = [arrays[f"logits.{t}"] for t in range(int(meta["sessions"]))]
            cost = (meta["seconds"], meta["encoding"], meta["encoded"], meta["bytes"])
        except (InputError, ValueError, KeyError, TypeError):
            return None  # damaged, or of an earlier version: play it again
        return Course(logits, *cost)

    def _write(self, key: tuple[str, str, int], course: Course) -> None:
        path = self._path(key)
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_leftovers(path)
        meta = {
            "sessions": len(course.logits),
            "seconds": course.seconds,
            "encoding": course.encoding,
            "encoded": course.encoded,
            "bytes": course.bytes,
        }
        logits = {f"logits.{t}": logits for t, logits in enumerate(course.logits)}
        storage.write(path, "session", meta, logits)
