"""TEEN (Wang et al., NeurIPS 2023): few-shot prototypes lean towards similar base prototypes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cala.core.growing import GrowingRows
from cala.core.prototypes import normalise
from cala.core.stored_rows import Features
from cala.core.teen import calibrated
from cala.errors import InputError
from cala.heads.base import State
from cala.heads.checks import is_number
from cala.heads.nearest_mean import NearestMean
from cala.heads.registry import HEADS


@HEADS.register("teen", "nearest mean; novel prototypes lean towards base ones they resemble")
class Teen(NearestMean):
    """Logits s·cos(f(x), p_c); p_c of a novel class is calibrated, of a base class its mean.

    A class is calibrated when its shots arrive and when more are folded in; nothing else moves
    it. The base prototypes it leans towards are those of `fit_base`, whatever base classes have
    since learned or whether they were forgotten, so the order of sessions does not matter.

    `prototypes` are the calibrated ones: images are compared with them, so similarity to base
    (Eq. 6) is that of the classifier's own weights, in pseudo sessions and afterwards alike.

    alpha : how far to lean, 0 (nearest mean) to 1. The authors use 0.1 on CIFAR-100 and 0.5
        elsewhere; what was measured is in docs/methods.md
    tau : how sharply similar base classes are preferred
    """

    name = "teen"

    def __init__(
        self,
        *,
        metric: str = "cosine",
        shrinkage: float | str = "auto",
        scale: float | str = "auto",
        alpha: float = 0.5,
        tau: float = 16.0,
    ) -> None:
        super().__init__(metric=metric, shrinkage=shrinkage, scale=scale)
        if not (is_number(alpha) and 0 <= alpha <= 1):
            raise InputError(f"alpha is {alpha!r}: give a number from 0 to 1")
        if not (is_number(tau) and 0 <= tau < math.inf):
            raise InputError(f"tau is {tau!r}: give a number from 0 on")
        self.alpha, self.tau = float(alpha), float(tau)
        self._anchors = torch.zeros(0, 0)

    def prototypes_at(self, columns: Tensor) -> Tensor:
        means = super().prototypes_at(columns)
        novel = columns >= self.n_base
        if bool(novel.any()):
            means[novel] = self._calibrated(means[novel])
        return means

    def new_prototype(self, unit: Tensor) -> Tensor:
        return self._calibrated(super().new_prototype(unit))

    def _calibrated(self, means: Tensor) -> Tensor:
        return calibrated(means, self._anchors, self.alpha, self.tau)

    def unit_logits(self, unit: Tensor, members: Tensor | None = None) -> Tensor:
        if members is None:
            return super().unit_logits(unit)
        novel = members >= self.n_base
        logits = super().unit_logits(unit, members.masked_fill(novel, -1))
        rows = novel.nonzero()[:, 0]
        own, mine = members[rows], unit[rows]
        rest = self.table.sums[own] - mine
        alone = (self.table.counts[own] <= 1) | (rest.norm(dim=1) < 1e-9)
        weights = normalise(self._calibrated(rest.to(unit.dtype)))
        left = (mine * weights).sum(1).masked_fill(alone, 0.0)
        logits[rows, own] = self._scaled(left)
        return logits

    def _fit_table(self, features: Features, columns: Tensor, rows: Tensor | None = None) -> None:
        super()._fit_table(features, columns, rows)
        self._anchors = normalise(self.prototypes[: self.n_base])

    def config(self) -> dict[str, Any]:
        return {**super().config(), "alpha": self.alpha, "tau": self.tau}

    def state(self) -> State:
        state = super().state()
        # Weights too: calibrating all classes at once rounds otherwise than one by one.
        state["tensors"].update(anchors=self._anchors, weights=self._weights)
        return state

    def _restore(self, state: State) -> None:
        self._anchors = state["tensors"]["anchors"]
        super()._restore(state)
        self._rows = GrowingRows(state["tensors"]["weights"])
