"""Which photos a model has learned from: digests, so that the same photo is noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SeenPhotos:
    """digest : (n, 32) uint8, SHA-256 of each photo; owner : (n,) number of its class."""

    digest: Tensor
    owner: Tensor

    @classmethod
    def empty(cls) -> SeenPhotos:
        return cls(torch.zeros(0, 32, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64))

    def __len__(self) -> int:
        return len(self.owner)

    def owners(self) -> dict[bytes, int]:
        """Class of each photo, by digest."""
        flat = self.digest.numpy().tobytes()
        keys = (flat[i : i + 32] for i in range(0, len(flat), 32))
        return dict(zip(keys, self.owner.tolist(), strict=True))

    def with_photos(self, digests: Sequence[bytes], owners: Sequence[int]) -> SeenPhotos:
        new = torch.frombuffer(bytearray(b"".join(digests)), dtype=torch.uint8).reshape(-1, 32)
        return SeenPhotos(
            torch.cat([self.digest, new]), torch.cat([self.owner, torch.tensor(list(owners))])
        )

    def without(self, owner: int) -> SeenPhotos:
        keep = self.owner != owner
        return SeenPhotos(self.digest[keep], self.owner[keep])

    def counts(self) -> Counter[int]:
        return Counter(self.owner.tolist())

    def tensors(self) -> dict[str, Tensor]:
        return {"digest": self.digest, "owner": self.owner}
