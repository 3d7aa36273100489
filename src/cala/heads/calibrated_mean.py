"""Nearest mean with concentration: tight base classes get steeper logits (ours)."""

from __future__ import annotations

import torch
from torch import Tensor

from cala.core.calibration import fit_concentration, standardised_tightness
from cala.heads.base import State
from cala.heads.nearest_mean import NearestMean
from cala.heads.registry import HEADS

MIN_CLASSES = 10


@HEADS.register("calibrated-mean", "nearest mean; each base class's slope follows its tightness")
class CalibratedMean(NearestMean):
    """Base logits slope_b·cos + offset_b, novel logits s·cos.

    Slopes and offsets are fixed at `fit_base`. With fewer than 10 base classes two parameters on
    their tightness cannot be told from noise, and this is `nearest-mean`.
    """

    name = "calibrated-mean"

    _slope: Tensor  # (C,)
    _offset: Tensor  # (C,)

    def _scaled(self, cosines: Tensor) -> Tensor:
        return cosines.mul_(self._slope).add_(self._offset)

    def linear_form(self) -> tuple[Tensor, Tensor]:
        return self._slope[:, None] * self._weights, self.linear_bias()

    def linear_at(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        return self._slope[columns, None] * self._weights[columns], self._offset[columns]

    def linear_bias(self) -> Tensor:
        return self._offset.clone()

    def _fit_scale(self, cosines: Tensor, own: Tensor) -> None:
        super()._fit_scale(cosines, own)
        self._slope = cosines.new_full((self.n_base,), self.scale)
        self._offset = cosines.new_zeros(self.n_base)
        if self.n_base < MIN_CLASSES or len(own) == 0:
            return
        found = fit_concentration(
            cosines,
            own,
            standardised_tightness(self.table),
            self.scale,
            free_scale=self.scale_option == "auto",
        )
        self._slope, self._offset = found.slope.to(self.dtype), found.offset.to(self.dtype)
        self.scale = float(found.slope.log().mean().exp())

    def _add(self, unit: Tensor, columns: Tensor) -> None:
        super()._add(unit, columns)
        new = len(self.classes) - len(self._slope)
        self._slope = torch.cat([self._slope, self._slope.new_full((new,), self.scale)])
        self._offset = torch.cat([self._offset, self._offset.new_zeros(new)])

    def _forget(self, column: int) -> None:
        super()._forget(column)
        self._slope = torch.cat([self._slope[:column], self._slope[column + 1 :]])
        self._offset = torch.cat([self._offset[:column], self._offset[column + 1 :]])

    def state(self) -> State:
        state = super().state()
        state["tensors"].update(slope=self._slope, offset=self._offset)
        return state

    def _restore(self, state: State) -> None:
        super()._restore(state)
        self._slope, self._offset = state["tensors"]["slope"], state["tensors"]["offset"]
