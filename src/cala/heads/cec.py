"""CEC (Zhang et al., CVPR 2021): prototypes and the query attend to each other before cosines."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from cala.core.attention import NAME, SCALE, SCORES, SetAttention
from cala.core.growing import GrowingRows
from cala.core.mixing import FakePool
from cala.core.prototypes import normalise
from cala.core.stored_rows import Features
from cala.heads.checks import is_auto
from cala.heads.registry import HEADS
from cala.heads.trained import TrainedHead


@HEADS.register("cec", "prototypes and query attend to each other (own base session)")
class Cec(TrainedHead):
    """Logits 16·cos after attention over all seen prototypes and the query.

    scale : "auto" is 16, as in training
    """

    name = "cec"
    takes_encoder_scale: ClassVar[bool] = False
    leaves_out_cheaply: ClassVar[bool] = False

    _attention: SetAttention

    @classmethod
    def part_shapes(cls, dim: int) -> dict[str, tuple[int | None, ...]]:
        with torch.device("meta"):
            tensors = SetAttention(dim).state_dict()
        return {NAME + k: tuple(v.shape) for k, v in tensors.items()}

    def _take_parts(self) -> None:
        attention = SetAttention(self.dim)
        given = self.parts.items()
        attention.load_state_dict({k.removeprefix(NAME): v for k, v in given})
        device = self.table.counts.device
        self._attention = attention.to(device, self.dtype).eval().requires_grad_(False)

    def unit_logits(self, unit: Tensor, members: Tensor | None = None) -> Tensor:
        cosines = self._attention.cosines(self._weights, unit)
        if members is not None:
            at_once = max(1, SCORES // (len(self.classes) * self.dim))
            for rows in (members >= 0).nonzero()[:, 0].split(at_once):
                cosines[rows] = self._left_out(unit[rows], members[rows])
        return self._scaled(cosines)

    def _left_out(self, unit: Tensor, members: Tensor) -> Tensor:
        """Cosines (n, C) of rows to prototypes that each was left out of."""
        rest = self.table.sums[members] - unit
        alone = (self.table.counts[members] <= 1) | (rest.norm(dim=1) < 1e-9)
        sets = self._weights.expand(len(unit), -1, -1).clone()
        each = torch.arange(len(unit), device=unit.device)
        sets[each, members] = normalise(rest.to(unit.dtype))
        cosines = self._attention.cosines_each(sets, unit)
        cosines[each[alone], members[alone]] = 0.0
        return cosines

    def _fit_base(
        self,
        features: Features,
        columns: Tensor,
        fakes: FakePool | None,
        holdout: Tensor | None,
    ) -> None:
        self._rows = GrowingRows(normalise(self.prototypes))
        self.scale = SCALE if is_auto(self.scale_option) else float(self.scale_option)
