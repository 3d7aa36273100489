"""Nearest mean whose base prototypes rest on a few picked images each."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from cala.core.prototypes import PrototypeTable, chunks
from cala.core.stored_rows import Features
from cala.heads.base import State
from cala.heads.nearest_mean import NearestMean

SAME = 1e-5  # how far apart two computations of the same unit vector may be


class PickedMean(NearestMean):
    """Template: `_pick` says which images of a base class make its prototype."""

    _picked: Tensor  # (B, K, d) unit vectors, 0 where a class has fewer

    @abstractmethod
    def _pick(self, unit: Tensor) -> Tensor:
        """Places (k,) of the images to take, of those (n, d) of one class."""

    def _fit_table(self, features: Features, columns: Tensor, rows: Tensor | None = None) -> None:
        super()._fit_table(features, columns, rows)
        rows = torch.arange(len(columns), device=columns.device) if rows is None else rows
        order = rows[columns[rows].argsort(stable=True)]
        picked = []
        for own in order.split(torch.bincount(columns[rows], minlength=self.n_base).tolist()):
            unit = self.embed(features[own])[:, : self.dim]
            picked.append(unit[self._pick(unit)] if len(own) else unit)
        counts = [len(some) for some in picked]
        owners = torch.arange(self.n_base).repeat_interleave(torch.tensor(counts))
        self.table = PrototypeTable.of(
            [(torch.cat(picked), owners.to(columns.device))], self.n_base, self.dim
        )
        self._picked = picked[0].new_zeros(self.n_base, max(counts), self.dim)
        for column, some in enumerate(picked):
            self._picked[column, : len(some)] = some

    def unit_logits(self, unit: Tensor, members: Tensor | None = None) -> Tensor:
        if members is not None:
            members = members.masked_fill(~self._helped(unit, members), -1)
        return super().unit_logits(unit, members)

    def _members_at(self, features: Features, rows: Tensor, own: Tensor) -> Tensor:
        found = [
            self._helped(self.embed(features[rows[part]]), own[part])
            for part in chunks(len(rows), self.dim)
        ]
        return own.masked_fill(~torch.cat(found), -1) if found else own

    def _helped(self, unit: Tensor, members: Tensor) -> Tensor:
        """(n,) bool: rows that are part of the prototype of their class."""
        helped = members >= self.n_base
        base = ((members >= 0) & ~helped).nonzero()[:, 0]
        for part in chunks(len(base), self._picked.shape[1] * self.dim):
            rows = base[part]
            apart = self._picked[members[rows]] - unit[rows, None]
            helped[rows] = (apart.abs().amax(2) < SAME).any(1)
        return helped

    def _forget(self, column: int) -> None:
        super()._forget(column)
        if column < len(self._picked):
            self._picked = torch.cat([self._picked[:column], self._picked[column + 1 :]])

    def state(self) -> State:
        state = super().state()
        state["tensors"]["picked"] = self._picked
        return state

    def _restore(self, state: State) -> None:
        super()._restore(state)
        self._picked = state["tensors"]["picked"]
