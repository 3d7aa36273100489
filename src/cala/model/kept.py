"""Embeddings of the photos that a model has learned from, to judge them and to take one out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_KEPT = 5000  # photos; 25 MB with 1,280 numbers each

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class KeptPhotos:
    """Photos by their digests, in order of arrival.

    digest : (n, 32) uint8, SHA-256 of each photo; rows : (n, d) its embedding
    names : its file and that file's folder, for people
    """

    digest: NDArray[np.uint8]
    rows: NDArray[np.float32]
    names: tuple[str, ...]

    @classmethod
    def empty(cls, dim: int) -> KeptPhotos:
        return cls(np.zeros((0, 32), np.uint8), np.zeros((0, dim), np.float32), ())

    def __len__(self) -> int:
        return len(self.names)

    def digests(self) -> list[bytes]:
        """Digests as bytes."""
        return [bytes(row) for row in self.digest]

    def with_photos(
        self, digests: Sequence[bytes], rows: NDArray[np.float32], files: Sequence[str]
    ) -> KeptPhotos:
        """With more photos, as long as there is room."""
        room = max(0, MOST_KEPT - len(self))
        new = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32)[:room]
        names = ("/".join(PurePath(file).parts[-2:]) for file in files[:room])
        return KeptPhotos(
            np.concatenate([self.digest, new]),
            np.concatenate([self.rows, rows[:room].astype(np.float32, copy=False)]),
            (*self.names, *names),
        )

    def at(self, places: Sequence[int] | NDArray[Any]) -> KeptPhotos:
        """Some of them: (m,) places or (n,) bool."""
        chosen = np.arange(len(self))[np.asarray(places)]
        names = tuple(self.names[place] for place in chosen)
        return KeptPhotos(self.digest[chosen], self.rows[chosen], names)

    def arrays(self) -> Arrays:
        """For the store."""
        text = json.dumps(self.names).encode()
        names = np.frombuffer(text, np.uint8)
        return {"digest": self.digest, "rows": self.rows, "names": names}

    @classmethod
    def of(cls, parts: Sequence[Arrays], dim: int) -> KeptPhotos:
        """From arrays of the store."""
        found = cls.empty(dim)
        for part in parts:
            names = json.loads(part["names"].tobytes()) if "names" in part else []
            if not len(part["digest"]) == len(part["rows"]) == len(names):
                raise ValueError("embeddings, digests and names differ in number")
            digest = np.concatenate([found.digest, part["digest"]])
            rows = np.concatenate([found.rows, part["rows"]])
            found = cls(digest, rows, (*found.names, *map(str, names)))
        return found
