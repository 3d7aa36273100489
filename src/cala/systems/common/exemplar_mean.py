"""Nearest mean whose base prototypes rest on a few exemplars each."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from cala.core.cala import PrototypeTable
from cala.core.rows import Array, chunks
from cala.heads.base_data import BaseData
from cala.heads.nearest_mean import NearestMean

_SAME = 1e-5  # how far apart two computations of the same unit vector may be


class ExemplarMean(NearestMean):
    """Template: `_pick` says which images of a base class make its prototype."""

    saved_arrays = ("_picked",)

    _picked: Array  # (B, K, d) unit vectors, 0 where a class has fewer

    @abstractmethod
    def _pick(self, unit: Array) -> Array:
        """Places (k,) of the images to take, of those (n, d) of one class."""

    def _fit_table(self, data: BaseData, rows: Array | None = None) -> None:
        super()._fit_table(data, rows)
        every = np.arange(len(data))
        grouped = data.rows.where(np.isin(every, every if rows is None else rows))
        picked = []
        for own in np.split(grouped.order, np.cumsum(grouped.counts)[:-1]):
            unit = self.embed(data.features[own])[:, : self.dim]
            picked.append(unit[self._pick(unit)] if len(own) else unit)
        counts = [len(some) for some in picked]
        owners = np.repeat(np.arange(self.n_base), counts)
        self.table = PrototypeTable.of([(np.concatenate(picked), owners)], self.n_base, self.dim)
        self._picked = np.zeros((self.n_base, max(counts), self.dim), picked[0].dtype)
        for column, some in enumerate(picked):
            self._picked[column, : len(some)] = some

    def _without_own(self, cosines: Array, unit: Array, members: Array) -> Array:
        helped = np.where(self._helped(unit, members), members, -1)
        return super()._without_own(cosines, unit, helped)

    def _helped(self, unit: Array, members: Array) -> Array:
        """(n,) bool: rows that are part of the prototype of their class."""
        helped = members >= self.n_base
        base = np.flatnonzero((members >= 0) & ~helped)
        for part in chunks(len(base), self._picked.shape[1] * self.dim):
            rows = base[part]
            apart = self._picked[members[rows]] - unit[rows, None]
            helped[rows] = (np.abs(apart).max(2) < _SAME).any(1)
        return helped

    def _forget(self, column: int) -> None:
        super()._forget(column)
        if column < len(self._picked):
            self._picked = np.delete(self._picked, column, axis=0)
