"""Nearest class mean: the incremental-frozen baseline, and the CALA paper's host."""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import Self, Unpack

from cala.core._memory import AppendOnly
from cala.core.cala import PrototypeTable, cosine_logits, normalise
from cala.core.calibration import leave_one_out
from cala.core.rows import Array
from cala.errors import InputError
from cala.heads.base import State
from cala.heads.base_data import BaseData
from cala.heads.table import ScaledHead, ScaledOptions

#: Heads whose classes are means of embeddings and nothing else.
MEANS_ONLY = ("nearest-mean", "calibrated-mean")


class ClassMeans(ScaledHead):
    """Template: unit prototypes as rows, and a scale that turns cosines with them into logits."""

    #: Whether the rows are part of the state, because they do not follow from the table.
    keeps_weights: bool = False

    def __init__(self, **common: Unpack[ScaledOptions]) -> None:
        super().__init__(**common)
        self._rows = AppendOnly(np.zeros((0, 0)))

    @property
    def _weights(self) -> Array:
        """Unit prototypes (C, d)."""
        return self._rows.rows

    def _scores(self, unit: Array, members: Array | None) -> Array:
        cosines = cosine_logits(unit, self._weights)
        return cosines if members is None else self._without_own(cosines, unit, members)

    def _without_own(self, cosines: Array, unit: Array, members: Array) -> Array:
        """Cosines (n, C) of rows (n, d), each to its own prototype as if it were not in there."""
        return leave_one_out(cosines, self.table, members)

    def _rest(self, unit: Array, members: Array) -> tuple[Array, Array]:
        """Sums (n, d) of each row's class without the row, and whether nothing is left: (n,)."""
        rest = self.table.sums[members] - unit
        return rest, (self.table.counts[members] <= 1) | (np.linalg.norm(rest, axis=1) < 1e-9)

    def _directions(self, prototypes: Array) -> Array:
        """What unit embeddings are compared with: (C, d) -> (C, d) unit vectors."""
        return normalise(prototypes)

    def _fit_base(self, data: BaseData) -> None:
        self._rows = AppendOnly(self._directions(self.prototypes))
        super()._fit_base(data)

    def _refit(self, data: BaseData, rows: Array) -> None:
        super()._refit(data, rows)
        self._rows = AppendOnly(self._directions(self.prototypes))

    def _add(self, unit: Array, columns: Array) -> None:
        changed, old = np.unique(columns), len(self._weights)
        vectors = self._directions(self.prototypes_at(changed))
        known = changed < old
        if known.any():
            weights = self._weights.copy()
            weights[changed[known]] = vectors[known]
            self._rows = AppendOnly(weights)
        self._rows = self._rows.appended(vectors[~known])

    def _forget(self, column: int) -> None:
        self._rows = AppendOnly(np.delete(self._weights, column, axis=0))

    def state(self) -> State:
        state = super().state()
        if self.keeps_weights:
            state["tensors"]["weights"] = self._weights
        return state

    def _restore(self, state: State) -> None:
        kept: Any = state["tensors"].get("weights") if self.keeps_weights else None
        self._rows = AppendOnly(self._directions(self.prototypes) if kept is None else kept)


class NearestMean(ClassMeans):
    """Logits s·cos(f(x), p_c) with p_c the mean of class c's unit embeddings."""

    name = "nearest-mean"

    def remove(self, features: Array, label: int) -> Self:
        if self.name not in MEANS_ONLY:  # others keep more than means
            return super().remove(features, label)
        column, smaller = self.classes.index(label), self.fork()
        if self.table.counts[column] <= len(features):
            detail = f"class {label!r} would have no image left"
            raise InputError(detail, "forget the class instead", code="last_image")
        unit = self.embed(self._checked("remove", features))
        smaller.table = self.table.reduced(unit[:, : self.dim], column)
        smaller._add(unit, np.array([column]))
        return self._become(smaller)

    def linear_form(self) -> tuple[Array, Array]:
        weights = self.dtype.type(self.scale) * self._weights
        return weights, np.zeros(len(self.classes), self.dtype)

    def new_row(self, unit: Array) -> tuple[Array, Array]:
        direction = self._directions(self.new_prototype(unit))
        return self.dtype.type(self.scale) * direction, np.zeros(1, self.dtype)

    def new_prototype(self, unit: Array) -> Array:
        """The prototype (1, d) that shots (K, d) of one new class would get."""
        one = PrototypeTable.empty(1, unit.shape[1])
        return one.extended(unit, np.zeros(len(unit), np.int64)).means.astype(self.dtype)
