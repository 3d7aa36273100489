"""Nearest class mean: the incremental-frozen baseline, and the paper's host."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from typing_extensions import Self

from cala.core._memory import AppendOnly
from cala.core.cala import PrototypeTable, cosine_logits, leave_one_out, normalise
from cala.core.calibration import fit_scale
from cala.core.rows import Array, Features, chunks
from cala.errors import InputError
from cala.heads.base import State, Traits
from cala.heads.base_data import BaseData
from cala.heads.checks import is_auto, is_number
from cala.heads.table import TableHead


class ClassMeans(TableHead):
    """Template: unit prototypes as rows, and a scale that turns cosines with them into logits.

    scale : the scale s of base training, or "auto" for the one that minimises leave-one-out
        cross-entropy on base rows
    """

    traits: ClassVar[Traits] = Traits(takes_encoder_scale=True, streams=True)

    def __init__(
        self,
        *,
        metric: str = "cosine",
        shrinkage: float | str = "auto",
        scale: float | str = "auto",
    ) -> None:
        super().__init__(metric=metric, shrinkage=shrinkage)
        if not is_auto(scale) and not (is_number(scale) and 0 < float(scale) < math.inf):
            raise InputError(f'scale is {scale!r}: give a positive number or "auto"')
        self.scale_option = scale if is_auto(scale) else float(scale)
        self.scale = 0.0
        self._rows = AppendOnly(np.zeros((0, 0)))

    @property
    def _weights(self) -> Array:
        """Unit prototypes (C, d)."""
        return self._rows.rows

    def unit_logits(self, unit: Array, members: Array | None = None) -> Array:
        cosines = cosine_logits(unit, self._weights)
        if members is not None:
            cosines = self._without_own(cosines, unit, members)
        return self._scaled(cosines)

    def _without_own(self, cosines: Array, unit: Array, members: Array) -> Array:
        """Cosines (n, C) of rows (n, d), each to its own prototype as if it were not in there."""
        return leave_one_out(cosines, self.table, members)

    def _directions(self, prototypes: Array) -> Array:
        """What unit embeddings are compared with: (C, d) -> (C, d) unit vectors."""
        return normalise(prototypes)

    def _scaled(self, cosines: Array) -> Array:
        """Logits; cosines (n, C) are a temporary that may be written to."""
        cosines *= self.scale
        return cosines

    def _fit_base(self, data: BaseData) -> None:
        self._rows = AppendOnly(self._directions(self.prototypes))
        if self._fits_scale:
            self._fit_scale(*self._unbiased_cosines(data))
            for scorer in data.scorers(self):
                scorer.head._scale_like(self)
        else:
            self._take_scale(float(self.scale_option))

    def _take_scale(self, scale: float) -> None:
        """Use a given scale."""
        self.scale = scale

    @property
    def _fits_scale(self) -> bool:
        """Whether what turns cosines into logits is learned from base rows."""
        return is_auto(self.scale_option)

    def _unbiased_cosines(self, data: BaseData) -> tuple[Array, Array]:
        """Cosines (m, B) of some base rows to the base prototypes, and their own columns (m,)."""
        parts, owners = [], []
        for scorer, rows, own in data.scale_rows(self):
            members = None
            if scorer.leave_out:
                members = scorer.head._members_at(data.features, rows, own)
            parts.append(scorer.head._cosines_at(data.features, rows, members))
            owners.append(own)
        return np.concatenate(parts), np.concatenate(owners)

    def _members_at(self, features: Features, rows: Array, own: Array) -> Array:
        """The columns (m,) that rows (m,) of features helped to make, of those they belong to;
        -1 where a row did not."""
        return own

    def _cosines_at(self, features: Features, rows: Array, members: Array | None) -> Array:
        """Cosines (m, C) of some rows (m,) of features (n, d) to the prototypes.

        members : (m,) columns that the rows are to be left out of
        """
        cosines = np.empty((len(rows), len(self._weights)), self._weights.dtype)
        for part in chunks(len(rows), self.dim):
            unit = self.embed(features[rows[part]])
            cosines[part] = cosine_logits(unit, self._weights)
            if members is not None:
                cosines[part] = self._without_own(cosines[part], unit, members[part])
        return cosines

    def _fit_scale(self, cosines: Array, own: Array) -> None:
        """Choose what turns cosines into logits."""
        self.scale = fit_scale(cosines, own)

    def _scale_like(self, other: Any) -> None:
        """Turn cosines into logits as another head of this kind does."""
        self.scale = other.scale

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

    def config(self) -> dict[str, Any]:
        return {**super().config(), "scale": self.scale_option}

    def alike(self) -> Self:
        other = self.blank()
        other.scale_option = self.scale
        return other

    def state(self) -> State:
        state = super().state()
        state["meta"]["scale"] = self.scale
        return state

    def _restore(self, state: State) -> None:
        super()._restore(state)
        self.scale = state["meta"]["scale"]
        self._rows = AppendOnly(self._directions(self.prototypes))


class NearestMean(ClassMeans):
    """Logits s·cos(f(x), p_c) with p_c the mean of class c's unit embeddings."""

    name = "nearest-mean"

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
