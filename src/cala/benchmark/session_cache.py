"""Session logits on disk: sessions that train an encoder take minutes, so none runs twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from cala.benchmark.encoder_sessions import SessionLogits, SessionPlayer
from cala.benchmark.sources import Source, host_of
from cala.data.protocol import Protocol, ShotDraw
from cala.files import atomic, clear_leftovers
from cala.heads import HEADS, Head

SCHEMA = 1


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
            with safe_open(path, framework="np") as file:
                meta = json.loads((file.metadata() or {}).get("course", "{}"))
                if meta.get("schema") != SCHEMA:
                    return None
                logits = [file.get_tensor(f"logits.{t}") for t in range(int(meta["sessions"]))]
            cost = (meta["seconds"], meta["encoding"], meta["encoded"], meta["bytes"])
        except (OSError, SafetensorError, ValueError, KeyError, TypeError):
            return None  # damaged: play it again
        return SessionLogits(logits, *cost)

    def _write(self, key: tuple[str, str, int], course: SessionLogits) -> None:
        path = self._path(key)
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_leftovers(path)
        meta = {
            "schema": SCHEMA,
            "sessions": len(course.logits),
            "seconds": course.seconds,
            "encoding": course.encoding,
            "encoded": course.encoded,
            "bytes": course.bytes,
        }
        arrays = {f"logits.{t}": np.ascontiguousarray(z) for t, z in enumerate(course.logits)}
        with atomic(path) as temporary:
            temporary.write_bytes(save(arrays, {"course": json.dumps(meta)}))
