"""iCaRL as few-shot papers use it: frozen embeddings, cross-entropy, distillation on anchors."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from cala.core.growing import GrowingRows
from cala.core.logits import leave_one_out_cosine
from cala.core.mixing import FakePool
from cala.core.neural_gas import fit_gas
from cala.core.prototypes import normalise
from cala.core.pseudo import draw_base_queries
from cala.core.softmax import distilled_rows
from cala.core.stored_rows import Features
from cala.errors import InputError
from cala.heads.base import State
from cala.heads.checks import is_number
from cala.heads.nearest_mean import NearestMean
from cala.heads.registry import HEADS

ANCHORS = 400
PER_CLASS = 100  # base rows of each class that the neural gas learns from


@HEADS.register("icarl-star", "softmax rows tuned on the shots, distilled on anchors")
class IcarlStar(NearestMean):
    """Logits s·f(x)·w_c: rows start as class means, and every session tunes them all.

    A session's loss is the cross-entropy of its shots and the distillation of the old rows'
    answers on anchors: base images that a neural gas chose, and the means of earlier novel
    classes. What it learns depends on which shots came together.

    steps, lr : of a session
    """

    name = "icarl-star"
    old_columns_stay: ClassVar[bool] = False
    folds_shots: ClassVar[bool] = False
    linear: ClassVar[bool] = False  # so are its logits, but no row can be made without the others
    metrics: ClassVar[tuple[str, ...]] = ("cosine",)

    def __init__(
        self,
        *,
        metric: str = "cosine",
        shrinkage: float | str = "auto",
        scale: float | str = "auto",
        steps: int = 30,
        lr: float = 0.003,
        seed: int = 0,
    ) -> None:
        super().__init__(metric=metric, shrinkage=shrinkage, scale=scale)
        if not (is_number(steps) and steps == int(steps) and steps >= 0):
            raise InputError(f"steps is {steps!r}: give a whole number from 0 on")
        if not (is_number(lr) and 0 < lr < 10):
            raise InputError(f"lr is {lr!r}: give a number above 0 and below 10")
        self.steps, self.lr, self.seed = int(steps), float(lr), seed
        self._anchors = torch.zeros(0, 0)  # (m, d) unit vectors

    def unit_logits(self, unit: Tensor, members: Tensor | None = None) -> Tensor:
        scores = unit @ self._weights.T
        if members is not None:
            # A row is worth to its class what it is worth to the class mean.
            cosines = unit @ normalise(self.prototypes).T
            scores = scores + leave_one_out_cosine(cosines, self.table, members) - cosines
        return self._scaled(scores)

    def _fit_base(
        self,
        features: Features,
        columns: Tensor,
        fakes: FakePool | None,
        holdout: Tensor | None,
    ) -> None:
        super()._fit_base(features, columns, fakes, holdout)
        generator = torch.Generator().manual_seed(self.seed)
        rows = draw_base_queries(columns.cpu(), PER_CLASS, generator).to(columns.device)
        unit = self.embed(features[rows])
        self._anchors = unit[fit_gas(unit, columns[rows], ANCHORS, generator).anchors]

    def _add(self, unit: Tensor, columns: Tensor) -> None:
        old = len(self._weights)
        novel = normalise(self.prototypes_at(torch.arange(self.n_base, old, device=unit.device)))
        super()._add(unit, columns)
        # More shots of a known class put its mean in the place of what tuning had made of it.
        self._rows = GrowingRows(
            distilled_rows(
                self._weights,
                old,
                unit,
                columns,
                torch.cat([self._anchors, novel]),
                scale=self.scale,
                steps=self.steps,
                lr=self.lr / self.scale,
            )
        )

    def config(self) -> dict[str, Any]:
        return {**super().config(), "steps": self.steps, "lr": self.lr, "seed": self.seed}

    def state(self) -> State:
        state = super().state()
        state["tensors"].update(anchors=self._anchors, weights=self._weights)
        return state

    def _restore(self, state: State) -> None:
        super()._restore(state)
        self._anchors = state["tensors"]["anchors"]
        self._rows = GrowingRows(state["tensors"]["weights"])
