"""What an adapter may know of a class: similarity to base (Eq. 6), shots and their spread."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cala.core.prototypes import PrototypeTable, normalise


def similarity(prototypes: Tensor, base_prototypes: Tensor) -> Tensor:
    """Eq. 6: cosine of each prototype (F, d) to the base prototypes (B, d) -> (F, B)."""
    return normalise(prototypes) @ normalise(base_prototypes).to(prototypes.dtype).T


@dataclass(frozen=True)
class ClassContext:
    """F classes as their adapter sees them.

    similarity : (F, B), Eq. 6
    tightness : (F,), mean pairwise cosine among the shots; NaN where there is one shot
    shots : (F,), how many images made the prototype
    """

    similarity: Tensor
    tightness: Tensor
    shots: Tensor

    @classmethod
    def of(cls, prototypes: Tensor, table: PrototypeTable, reference: Tensor) -> ClassContext:
        """From the prototypes (F, d) of the F classes whose sums and counts `table` holds.

        reference : (B, d) base prototypes of unit length, which Eq. 6 gives them; who adds one
            class after the other does not want to do that for all of them each time
        """
        dtype = reference.dtype
        return cls(
            normalise(prototypes.to(dtype)) @ reference.T,
            table.tightness.to(dtype),
            table.counts.to(dtype),
        )

    def __len__(self) -> int:
        return len(self.shots)

    @staticmethod
    def concatenate(contexts: list[ClassContext]) -> ClassContext:
        return ClassContext(
            torch.cat([c.similarity for c in contexts]),
            torch.cat([c.tightness for c in contexts]),
            torch.cat([c.shots for c in contexts]),
        )
