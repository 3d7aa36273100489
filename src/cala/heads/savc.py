"""SAVC (Song et al., CVPR 2023): a prototype for each view of a class, and the views vote."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from cala.core.fantasy import MOST, VIEWS, normalise_views
from cala.core.fine_tuning import tuned_rows
from cala.core.growing import GrowingRows
from cala.core.metric import CosineMetric
from cala.core.mixing import FakePool
from cala.core.prototypes import PrototypeTable, parts_of
from cala.core.stored_rows import Features
from cala.errors import InputError
from cala.heads.base import State
from cala.heads.checks import is_auto, is_number
from cala.heads.nearest_mean import NearestMean
from cala.heads.registry import HEADS


@HEADS.register("savc", "nearest mean per view of an image, the views vote (own base session)")
class Savc(NearestMean):
    """Logits s·mean_m cos(f_m, p_cm): view m of an image against view m of class c.

    An encoder of `cala train --method savc` puts the embeddings of the views side by side. With
    one view, as with any other encoder, this is `nearest-mean`.

    views : how many there are; "auto" takes what the encoder's `parts` say, else 1
    fine_tune : epochs in which the rows of new classes learn from their shots; 0 for none, the
        published number is 10. Rows of other classes stay exactly as they are
    """

    name = "savc"
    metrics: ClassVar[tuple[str, ...]] = ("cosine",)

    def __init__(
        self,
        *,
        metric: str = "cosine",
        shrinkage: float | str = "auto",
        scale: float | str = "auto",
        views: int | str = "auto",
        fine_tune: int = 0,
        parts: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__(metric=metric, shrinkage=shrinkage, scale=scale)
        given: Any = views
        if is_auto(views):
            stated = (parts or {}).get(VIEWS, torch.ones(1)).flatten().tolist()
            given = stated[0] if len(stated) == 1 else stated
        if not (is_number(given) and given in range(1, MOST + 1)):
            raise InputError(f'views is {given!r}: give a number from 1 to {MOST}, or "auto"')
        if not (is_number(fine_tune) and 0 <= fine_tune < math.inf and fine_tune % 1 == 0):
            raise InputError(f"fine_tune is {fine_tune!r}: give a whole number of epochs, or 0")
        self.views, self.fine_tune = int(given), int(fine_tune)
        self.metric = ViewMetric(self.views)

    def fit_base(
        self,
        features: Features,
        labels: Tensor,
        *,
        fakes: FakePool | None = None,
        holdout: Tensor | None = None,
    ) -> Self:
        dim = features.shape[-1]
        if dim % self.views:
            raise InputError(
                f"embeddings have {dim} dimensions, which {self.views} views cannot share: use "
                "those of the encoder that savc was trained with"
            )
        return super().fit_base(features, labels, fakes=fakes, holdout=holdout)

    def _fit_table(self, features: Features, columns: Tensor, rows: Tensor | None = None) -> None:
        units = ((self.metric(part), own) for part, own in parts_of(features, columns, rows))
        self.table = PrototypeTable.of(units, self.n_base, self.dim)

    def _directions(self, prototypes: Tensor) -> Tensor:
        return normalise_views(prototypes, self.views)

    def _without_own(self, cosines: Tensor, unit: Tensor, members: Tensor) -> Tensor:
        rows = (members >= 0).nonzero()[:, 0]
        own, mine = members[rows], unit[rows]
        rest = self.table.sums[own] - mine
        alone = (self.table.counts[own] <= 1) | (rest.norm(dim=1) < 1e-9)
        left = (mine * self._directions(rest).to(mine.dtype)).sum(1)
        result = cosines.clone()
        result[rows, own] = left.masked_fill(alone, 0.0)
        return result

    def _add(self, unit: Tensor, columns: Tensor) -> None:
        super()._add(unit, columns)
        moving = columns[columns >= self.n_base].unique()
        if not self.fine_tune or not len(moving):
            return
        shots = columns >= self.n_base
        tuned = tuned_rows(
            unit[shots],
            columns[shots],
            self._weights,
            moving,
            scale=self.scale,
            views=self.views,
            epochs=self.fine_tune,
        )
        self._rows = GrowingRows(self._weights.index_copy(0, moving, tuned))

    def new_row(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        if self.fine_tune:
            raise InputError(
                "savc with fine_tune has no row for a new class that a formula could give: use "
                "fine_tune=0"
            )
        return super().new_row(unit)

    def config(self) -> dict[str, Any]:
        return {**super().config(), "views": self.views, "fine_tune": self.fine_tune}

    def state(self) -> State:
        state = super().state()
        if self.fine_tune:  # else they follow from the table
            state["tensors"]["weights"] = self._weights
        return state

    def _restore(self, state: State) -> None:
        self.metric = ViewMetric(self.views)
        super()._restore(state)
        if self.fine_tune:
            self._rows = GrowingRows(state["tensors"]["weights"])


class ViewMetric(CosineMetric):
    """Unit length for each view by itself."""

    def __init__(self, views: int) -> None:
        self.views = views

    def __call__(self, features: Tensor) -> Tensor:
        return normalise_views(features, self.views)
