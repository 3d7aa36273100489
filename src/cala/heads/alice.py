"""ALICE (Peng et al., ECCV 2022): base prototypes of as few images as novel ones have."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from cala.core.prototypes import PrototypeTable, chunks, normalise, parts_of
from cala.heads.base import State
from cala.heads.nearest_mean import NearestMean
from cala.heads.registry import HEADS

BALANCED = 5
SAME = 1e-5  # how far apart two computations of the same unit vector may be


@HEADS.register("alice", "nearest mean; base prototypes of 5 images each (own base session)")
class Alice(NearestMean):
    """Nearest mean with balanced testing: a base prototype is the mean of the five images
    nearest to its class mean, so that base and novel classes rest on equally many.

    Its own base session is that of `cala train --method alice`; any other encoder will do too.
    """

    name = "alice"
    # Its base session has made a class of every pair of classes, from images mixed in this way.
    mixed_images_are_new: ClassVar[bool] = False

    _picked: Tensor  # (B, 5, d) unit vectors, 0 where a class has fewer

    def _fit_table(self, features: Tensor, columns: Tensor, rows: Tensor | None = None) -> None:
        super()._fit_table(features, columns, rows)
        means = normalise(self.prototypes)
        best = means.new_full((self.n_base, BALANCED), -torch.inf)
        picked = means.new_zeros(self.n_base, BALANCED, self.dim)
        for part, own in parts_of(features, columns, rows):
            unit = self.metric(part)
            nearness = (unit * means[own]).sum(1)
            for column in own.unique().tolist():
                mine = (own == column).nonzero()[:, 0]
                scores = torch.cat([best[column], nearness[mine]])
                kept = scores.topk(BALANCED)
                best[column] = kept.values
                picked[column] = torch.cat([picked[column], unit[mine]])[kept.indices]
        found = best.isfinite()
        owners = torch.arange(self.n_base, device=own.device)[:, None].expand_as(found)[found]
        self._picked = picked
        self.table = PrototypeTable.of([(picked[found], owners)], self.n_base, self.dim)

    def unit_logits(self, unit: Tensor, members: Tensor | None = None) -> Tensor:
        if members is not None:
            members = members.masked_fill(~self._helped(unit, members), -1)
        return super().unit_logits(unit, members)

    def _members_at(self, features: Tensor, rows: Tensor, own: Tensor) -> Tensor:
        found = [
            self._helped(self.embed(features[rows[part]]), own[part])
            for part in chunks(len(rows), self.dim)
        ]
        return own.masked_fill(~torch.cat(found), -1) if found else own

    def _helped(self, unit: Tensor, members: Tensor) -> Tensor:
        """(n,) bool: rows that are part of the prototype of their class."""
        helped = members >= self.n_base
        base = ((members >= 0) & ~helped).nonzero()[:, 0]
        for part in chunks(len(base), BALANCED * self.dim):
            rows = base[part]
            apart = self._picked[members[rows]] - unit[rows, None]
            helped[rows] = (apart.abs().amax(2) < SAME).any(1)
        return helped

    def _forget(self, column: int) -> None:
        super()._forget(column)
        self._picked = torch.cat([self._picked[:column], self._picked[column + 1 :]])

    def state(self) -> State:
        state = super().state()
        state["tensors"]["picked"] = self._picked
        return state

    def _restore(self, state: State) -> None:
        super()._restore(state)
        self._picked = state["tensors"]["picked"]
