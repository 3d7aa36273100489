"""FACT (Zhou et al., CVPR 2022): virtual prototypes have a say in what an image is."""

from __future__ import annotations

import torch
from torch import Tensor

from cala.core.logits import leave_one_out_cosine
from cala.core.prototypes import normalise
from cala.core.virtual import fused_logits, through_virtual
from cala.heads.registry import HEADS
from cala.heads.trained import TrainedHead


@HEADS.register("fact", "nearest mean fused with virtual prototypes (own base session)")
class Fact(TrainedHead):
    """The softmax of its logits is η·softmax(ℓ₁) + (1−η)·softmax(s·cos).

    ℓ₁ goes by way of the virtual prototypes; η is 0.1.
    """

    name = "fact"

    _virtual: Tensor  # (V, d)

    @classmethod
    def part_shapes(cls, dim: int) -> dict[str, tuple[int | None, ...]]:
        return {"virtual": (None, dim)}

    def _take_parts(self) -> None:
        given = self.parts["virtual"].to(self.table.counts.device, self.dtype)
        self._virtual = normalise(given)

    def unit_logits(self, unit: Tensor, members: Tensor | None = None) -> Tensor:
        cosines = unit @ self._weights.T
        through = through_virtual(unit, self._virtual, self._weights)
        if members is not None:
            cosines = leave_one_out_cosine(cosines, self.table, members)
            rows = (members >= 0).nonzero()[:, 0]
            own, mine = members[rows], unit[rows]
            rest = normalise((self.table.sums[own] - mine).to(unit.dtype))
            alone = (self.table.counts[own] <= 1)[:, None]
            left = _through_own(mine, self._virtual, rest.masked_fill(alone, 0.0))
            through[rows, own] = left
        return fused_logits(through, self._scaled(cosines))


def _through_own(unit: Tensor, virtual: Tensor, weights: Tensor) -> Tensor:
    """ℓ₁ of each row (n, d) for one class of its own (n, d): (n,)."""
    to_virtual = through_virtual(unit, virtual, torch.eye(unit.shape[1]).to(unit))
    return (to_virtual * weights).sum(1)
