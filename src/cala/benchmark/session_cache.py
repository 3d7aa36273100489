"""Session logits on disk: sessions that train an encoder take minutes, so none runs twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cala import storage
from cala.benchmark.encoder_sessions import SessionLogits, SessionPlayer
from cala.benchmark.sources import Source, host_of
from cala.data.protocol import Protocol, ShotDraw
from cala.errors import InputError
from cala.files import clear_leftovers
from cala.heads import HEADS, Head


class SessionCache:
    """The session logits of a run, by host, draw and seed; computed when first asked for."""

    def __init__(self, folder: Path | None, full: bool) -> None:
        self.folder, self.full = folder, full
        self._player: tuple[tuple[str, int], SessionPlayer] | None = (
            None  # the last one: it is large
        )
        self._kept: dict[tuple[str, str, int], SessionLogits] = {}

    def of(
        self,
        method: str,
        head: Head,
        source: Source,
        protocol: Protocol,
        draw: ShotDraw,
        seed: int,
        progress: Callable[[int], None] = lambda session: None,
    ) -> SessionLogits | None:
        """The session logits of a method's host; None if it leaves the encoder as it is."""
        host = host_of(method)
        if not HEADS[host].traits.changes_encoder:
            return None
        found = self.find(host, draw.name, seed)
        if found is None:
            if self._player is None or self._player[0] != (host, seed):
                player = SessionPlayer(host, head, source, protocol, seed, self.full)
                self._player = (host, seed), player
            found = self._player[1].play(draw, progress)
            self.keep(host, draw.name, seed, found)
        return found

    def find(self, host: str, draw: str, seed: int) -> SessionLogits | None:
        """Session logits that are there already; None if they are not."""
        key = (host, draw, seed)
        return self._kept.get(key) or self._read(key)

    def keep(self, host: str, draw: str, seed: int, course: SessionLogits) -> None:
        key = (host, draw, seed)
        self._write(key, course)
        if self.folder is None:
            self._kept[key] = course

    def _path(self, key: tuple[str, str, int]) -> Path | None:
        if self.folder is None:
            return None
        host, draw, seed = key
        return self.folder / f"{host}-{draw.replace(':', '-')}-{seed}.safetensors"

    def _read(self, key: tuple[str, str, int]) -> SessionLogits | None:
        path = self._path(key)
        if path is None or not path.exists():
            return None
        try:
            meta, arrays = storage.read(path, "session")
            logits = [arrays[f"logits.{t}"] for t in range(int(meta["sessions"]))]
            cost = (meta["seconds"], meta["encoding"], meta["encoded"], meta["bytes"])
        except (InputError, ValueError, KeyError, TypeError):
            return None  # damaged, or of an earlier version: compute it again
        return SessionLogits(logits, *cost)

    def _write(self, key: tuple[str, str, int], course: SessionLogits) -> None:
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
