"""Nearest mean with concentration: tight base classes get steeper logits (ours)."""

from __future__ import annotations

from typing import Any

import numpy as np

from cala.core.calibration import fit_concentration, standardised_tightness
from cala.core.rows import Array
from cala.heads.nearest_mean import NearestMean

MIN_CLASSES = 10


class CalibratedMean(NearestMean):
    """Base logits slope_b·cos + offset_b, novel logits s·cos.

    Slopes and offsets are fixed at `fit_base`. With fewer than 10 base classes two parameters on
    their tightness cannot be told from noise, and this is `nearest-mean`.
    """

    name = "calibrated-mean"
    fewest_base = MIN_CLASSES
    saved_arrays = ("_slope", "_offset")

    _slope: Array  # (C,)
    _offset: Array  # (C,)

    def _scaled(self, scores: Array) -> Array:
        scores *= self._slope
        scores += self._offset
        return scores

    def linear_form(self) -> tuple[Array, Array]:
        return self._slope[:, None] * self._weights, self._offset.copy()

    @property
    def _fits_scale(self) -> bool:
        return super()._fits_scale or self.n_base >= MIN_CLASSES

    def _take_scale(self, scale: float) -> None:
        super()._take_scale(scale)
        self._slope = np.full(self.n_base, scale, self.dtype)
        self._offset = np.zeros(self.n_base, self.dtype)

    def _fit_scale(self, scores: Array, own: Array) -> None:
        free = super()._fits_scale
        if free:
            super()._fit_scale(scores, own)
        self._take_scale(self.scale if free else float(self.config["scale"]))
        if self.n_base >= MIN_CLASSES and len(own):
            tightness = standardised_tightness(self.table)
            found = fit_concentration(scores, own, tightness, self.scale, free_scale=free)
            self.scale = float(np.exp(np.log(found.slope).mean()))
            self._slope = found.slope.astype(self.dtype)
            self._offset = found.offset.astype(self.dtype)

    def _scale_like(self, other: Any) -> None:
        super()._scale_like(other)
        self._slope, self._offset = other._slope, other._offset

    def _add(self, unit: Array, columns: Array) -> None:
        super()._add(unit, columns)
        new = len(self.classes) - len(self._slope)
        self._slope = np.concatenate([self._slope, np.full(new, self.scale, self.dtype)])
        self._offset = np.concatenate([self._offset, np.zeros(new, self.dtype)])

    def _forget(self, column: int) -> None:
        super()._forget(column)
        self._slope, self._offset = (np.delete(x, column) for x in (self._slope, self._offset))
