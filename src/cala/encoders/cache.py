"""Embeddings that were computed once, by the digest of their image.

One folder per encoder, transform and view. In it, segments: `.npy` files with one record
(digest, embedding) per image, written in one step and never changed, their CRC-32 in the name.
A damaged segment is dropped, so its images are encoded again.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from cala.encoders.base import Encoder
from cala.errors import InputError
from cala.files import atomic, cache_folder, crc32, reason, shown

ROOM = "embeddings"
SMALL = 1024  # records below which a segment counts as small
MANY = 32  # small segments that are merged into one
NAME = re.compile(r"[0-9a-f]{16}-([0-9a-f]{8})\.npy")


class EmbeddingCache:
    """What is known of one encoder's embeddings under one view.

    view : `plain`, `flip` or `mix`
    """

    def __init__(self, encoder: Encoder, view: str = "plain") -> None:
        label = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(encoder.name).name)[:40]
        self.folder = cache_folder(ROOM, f"{label}-{encoder.key[:24]}-{view}")
        self.record = np.dtype([("digest", "V32"), ("embedding", "<f4", (encoder.dim,))])
        self.lock = FileLock(self.folder / "lock")
        self._segments: dict[str, NDArray[Any]] = {}
        self._rows: dict[bytes, tuple[str, int]] = {}

    def __len__(self) -> int:
        self._refresh()
        return len(self._rows)

    def find(self, digests: Sequence[bytes]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Embeddings (n, d) and which of them are there (n,); the others are 0."""
        self._refresh()
        out = np.zeros((len(digests), *self.record["embedding"].shape), dtype=np.float32)
        found = np.zeros(len(digests), dtype=bool)
        wanted: dict[str, tuple[list[int], list[int]]] = {}
        for place, digest in enumerate(digests):
            known = self._rows.get(digest)
            if known is not None:
                places, rows = wanted.setdefault(known[0], ([], []))
                places.append(place)
                rows.append(known[1])
        for name, (places, rows) in wanted.items():
            out[places] = self._segments[name]["embedding"][rows]
            found[places] = True
        return out, found

    def put(self, digests: Sequence[bytes], embeddings: NDArray[np.float32]) -> None:
        """Keep embeddings; to be called while holding `lock`."""
        records = np.empty(len(digests), dtype=self.record)
        records["digest"] = np.frombuffer(b"".join(digests), dtype="V32")
        records["embedding"] = embeddings
        self._write(records)
        self._merge()

    def _write(self, records: NDArray[Any]) -> None:
        temporary = self.folder / f"{secrets.token_hex(8)}.part"
        try:
            with atomic(temporary) as path, path.open("wb") as file:
                np.save(file, records, allow_pickle=False)
            # The name carries the checksum, so it can only be given once the bytes are there.
            name = f"{secrets.token_hex(8)}-{crc32(temporary):08x}.npy"
            temporary.replace(self.folder / name)
        except OSError as error:
            raise InputError(
                f"the embedding cache {shown(self.folder)} cannot be written ({reason(error)}): "
                "free some space, or set CALA_CACHE to another folder"
            ) from error
        finally:
            temporary.unlink(missing_ok=True)

    def _merge(self) -> None:
        self._refresh()
        small = [n for n, s in self._segments.items() if len(s) < SMALL]
        if len(small) <= MANY:
            return
        self._write(np.concatenate([self._segments[name] for name in small]))
        for name in small:
            with suppress(OSError):
                (self.folder / name).unlink()

    def _refresh(self) -> None:
        present = {p.name for p in self.folder.glob("*.npy") if NAME.fullmatch(p.name)}
        gone = self._segments.keys() - present
        for name in gone:
            del self._segments[name]
        fresh = present - self._segments.keys()
        for name in sorted(fresh):
            segment = self._open(name)
            if segment is not None:
                self._segments[name] = segment
        if fresh or gone:
            self._rows = {
                bytes(digest): (name, row)
                for name, segment in self._segments.items()
                for row, digest in enumerate(segment["digest"].tolist())
            }

    def _open(self, name: str) -> NDArray[Any] | None:
        path = self.folder / name
        known = NAME.fullmatch(name)
        try:
            if known is None or crc32(path) != int(known[1], 16):
                raise ValueError("damaged")
            segment = np.load(path, mmap_mode="r", allow_pickle=False)
            if segment.dtype != self.record or segment.ndim != 1:
                raise ValueError("of another shape")
            return segment
        except FileNotFoundError:
            return None  # merged by another process
        except (ValueError, EOFError):
            with suppress(OSError):
                path.unlink()
            return None
