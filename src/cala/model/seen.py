"""Which photos a model has learned from: digests, so that the same photo is noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SeenPhotos:
    """digest : (n, 32) uint8, SHA-256 of each photo; owner : (n,) number of its class."""

    digest: NDArray[np.uint8]
    owner: NDArray[np.int64]

    @classmethod
    def empty(cls) -> SeenPhotos:
        return cls(np.zeros((0, 32), np.uint8), np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.owner)

    def owners(self) -> dict[bytes, int]:
        """Class of each photo, by digest."""
        flat = self.digest.tobytes()
        keys = (flat[i : i + 32] for i in range(0, len(flat), 32))
        return dict(zip(keys, self.owner.tolist(), strict=True))

    def with_photos(self, digests: Sequence[bytes], owners: Sequence[int]) -> SeenPhotos:
        new = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32)
        return SeenPhotos(
            np.concatenate([self.digest, new]),
            np.concatenate([self.owner, np.array(owners, dtype=np.int64)]),
        )

    def without(self, owner: int) -> SeenPhotos:
        keep = self.owner != owner
        return SeenPhotos(self.digest[keep], self.owner[keep])

    def counts(self) -> Counter[int]:
        return Counter(self.owner.tolist())

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"digest": self.digest, "owner": self.owner}
