"""Nearest class mean: the incremental-frozen baseline, and the paper's host."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from cala.core.growing import GrowingRows
from cala.core.logits import fit_scale, leave_one_out_cosine
from cala.core.mixing import FakePool
from cala.core.prototypes import chunks, normalise
from cala.core.stored_rows import Features
from cala.errors import InputError
from cala.heads.base import State
from cala.heads.checks import is_auto, is_number
from cala.heads.fairness import fair_queries
from cala.heads.registry import HEADS
from cala.heads.table import TableHead


@HEADS.register("nearest-mean", "cosine to the class means (Eq. 2-4), nothing learned after them")
class NearestMean(TableHead):
    """Logits s·cos(f(x), p_c) with p_c the mean of class c's unit embeddings.

    scale : the scale s of base training, or "auto" for the one that minimises leave-one-out
        cross-entropy on base rows
    """

    name = "nearest-mean"
    takes_encoder_scale: ClassVar[bool] = True
    linear: ClassVar[bool] = True
    streams: ClassVar[bool] = True

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
        self._rows = GrowingRows(torch.zeros(0, 0))

    @property
    def _weights(self) -> Tensor:
        """Unit prototypes (C, d)."""
        return self._rows.rows

    def unit_logits(self, unit: Tensor, members: Tensor | None = None) -> Tensor:
        cosines = unit @ self._weights.T
        if members is not None:
            cosines = self._without_own(cosines, unit, members)
        return self._scaled(cosines)

    def _without_own(self, cosines: Tensor, unit: Tensor, members: Tensor) -> Tensor:
        """Cosines (n, C) of rows (n, d), each to its own prototype as if it were not in there."""
        return leave_one_out_cosine(cosines, self.table, members)

    def _directions(self, prototypes: Tensor) -> Tensor:
        """What unit embeddings are compared with: (C, d) -> (C, d) unit vectors."""
        return normalise(prototypes)

    def _scaled(self, cosines: Tensor) -> Tensor:
        """Logits; cosines (n, C) are a temporary that may be written to."""
        return cosines.mul_(self.scale)

    def linear_form(self) -> tuple[Tensor, Tensor]:
        if not self.linear:
            return super().linear_form()
        return self.scale * self._weights, self._weights.new_zeros(len(self.classes))

    def new_row(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        if not self.linear:
            return super().new_row(unit)
        return self.scale * self._directions(self.new_prototype(unit)), unit.new_zeros(1)

    def _fit_base(
        self,
        features: Features,
        columns: Tensor,
        fakes: FakePool | None,
        holdout: Tensor | None,
    ) -> None:
        self._rows = GrowingRows(self._directions(self.prototypes))
        generator = torch.Generator().manual_seed(0)
        cosines, own = self._fair_cosines(features, columns, holdout, generator)
        self._fit_scale(cosines, own)

    def _fair_cosines(
        self,
        features: Features,
        columns: Tensor,
        holdout: Tensor | None,
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Cosines (m, B) of some base rows to the base prototypes, and their own columns (m,)."""
        parts, owners = [], []
        for judge, rows in fair_queries(self, features, columns, holdout, generator):
            head, own = judge.head, columns[rows]
            assert isinstance(head, NearestMean)
            members = head._members_at(features, rows, own) if judge.leave_out else None
            parts.append(head._cosines_at(features, rows, members))
            owners.append(own)
        return torch.cat(parts), torch.cat(owners)

    def _members_at(self, features: Features, rows: Tensor, own: Tensor) -> Tensor:
        """The columns (m,) that rows (m,) of features helped to make, of those they belong to;
        -1 where a row did not."""
        return own

    def _cosines_at(self, features: Features, rows: Tensor, members: Tensor | None) -> Tensor:
        """Cosines (m, C) of some rows (m,) of features (n, d) to the prototypes.

        members : (m,) columns that the rows are to be left out of
        """
        cosines = self._weights.new_empty(len(rows), len(self._weights))
        for part in chunks(len(rows), self.dim):
            unit = self.embed(features[rows[part]])
            torch.matmul(unit, self._weights.T, out=cosines[part])
            if members is not None:
                cosines[part] = self._without_own(cosines[part], unit, members[part])
        return cosines

    def _fit_scale(self, cosines: Tensor, own: Tensor) -> None:
        """Choose what turns cosines into logits."""
        option = self.scale_option
        self.scale = fit_scale(cosines, own) if option == "auto" else float(option)

    def _refit(self, features: Features, columns: Tensor, rows: Tensor) -> None:
        super()._refit(features, columns, rows)
        self._rows = GrowingRows(self._directions(self.prototypes))

    def _add(self, unit: Tensor, columns: Tensor) -> None:
        changed, old = columns.unique(), len(self._weights)
        vectors = self._directions(self.prototypes_at(changed))
        known = changed < old
        if bool(known.any()):
            weights = self._weights.clone()
            weights[changed[known]] = vectors[known]
            self._rows = GrowingRows(weights)
        self._rows = self._rows.appended(vectors[~known])

    def _forget(self, column: int) -> None:
        kept = torch.cat([self._weights[:column], self._weights[column + 1 :]])
        self._rows = GrowingRows(kept)

    def config(self) -> dict[str, Any]:
        return {**super().config(), "scale": self.scale_option}

    def state(self) -> State:
        state = super().state()
        state["meta"]["scale"] = self.scale
        return state

    def _restore(self, state: State) -> None:
        super()._restore(state)
        self.scale = state["meta"]["scale"]
        self._rows = GrowingRows(self._directions(self.prototypes))
