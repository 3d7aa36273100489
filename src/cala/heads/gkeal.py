"""GKEAL (Zhuang et al., CVPR 2023): a Gaussian kernel and ridge regression that only ever grows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from cala.core.kernel import draw_centres, gaussian_features, median_distance
from cala.core.least_squares import RidgeClassifier
from cala.core.logits import fit_scale
from cala.core.mixing import FakePool
from cala.core.prototypes import chunks, normalise, parts_of
from cala.core.stored_rows import Features
from cala.errors import InputError
from cala.heads.base import State
from cala.heads.checks import is_auto, is_number
from cala.heads.fairness import fair_queries
from cala.heads.registry import HEADS
from cala.heads.table import TableHead

USUAL_SHOTS = 5  # with repeat="auto" so many shots weigh as much as a base class


@HEADS.register("gkeal", "Gaussian kernel to base images, ridge regression by least squares")
class Gkeal(TableHead):
    """Logits s·φ(x)·W: φ_k(x) = exp(−‖x − c_k‖² / 2σ²), W the ridge solution of all rows seen.

    Sessions one by one give what solving once with all rows gives, so a new class also moves the
    columns of old ones: its shots are rows that belong to none of them. `forget` drops a class's
    column and keeps its rows as rows of no class: the other columns stay exactly as they are, and
    the same shots taught again weigh against themselves. (To unlearn shots, go back to a copy
    from before them.) Unlike most heads this one keeps embeddings, k of them: the centres.

    `embed` gives the unit vector and, behind it, the kernel features in the coordinates of
    `RidgeClassifier`, so that pseudo sessions compute them once per row. `prototypes` are class
    means in the head's metric: the ridge has no prototypes of its own.

    scale : turns scores into logits, or "auto" for the one that minimises leave-one-out
        cross-entropy on base rows
    centres : k at the most, drawn from all base rows; memory and time of `fit_base` grow with k²
    sigma : width σ of the kernel, or "auto" for the median distance between base rows
    ridge : γ
    repeat : how often each row of a novel class counts; "auto" makes five of them weigh as much
        as a base class
    copies : augmented rows per shot of a novel class, which share its weight: the shot moved as
        base images differ from their class mean. Leaving out a shot leaves its copies in
    seed : draws the centres and what copies are moved by
    """

    name = "gkeal"
    old_columns_stay: ClassVar[bool] = False

    def __init__(
        self,
        *,
        metric: str = "cosine",
        shrinkage: float | str = "auto",
        scale: float | str = "auto",
        centres: int = 500,
        sigma: float | str = "auto",
        ridge: float = 0.1,
        repeat: float | str = "auto",
        copies: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__(metric=metric, shrinkage=shrinkage)
        self.scale_option = _positive("scale", scale)
        self.sigma_option = _positive("sigma", sigma)
        self.repeat_option = _positive("repeat", repeat)
        if is_auto(ridge):
            raise InputError("ridge is 'auto': give a positive number")
        self.ridge = float(_positive("ridge", ridge))
        if not (is_number(centres) and centres == int(centres) and centres >= 1):
            raise InputError(f"centres is {centres!r}: give a whole number from 1 on")
        if not (is_number(copies) and copies == int(copies) and copies >= 0):
            raise InputError(f"copies is {copies!r}: give a whole number from 0 on")
        self.n_centres, self.copies, self.seed = int(centres), int(copies), seed
        self.scale, self.sigma, self.repeat = 1.0, 1.0, 1.0
        self._centres = torch.zeros(0, 0)
        self._moves = torch.zeros(0, 0)  # (copies, d)
        self._ridge = RidgeClassifier(*(torch.zeros(0, 0) for _ in range(3)))

    def embed(self, features: Tensor) -> Tensor:
        width = self.dim + len(self._centres)
        rows = features.new_empty(len(features), width)
        for part in chunks(len(features), width):
            unit = self.metric(features[part])
            rows[part, : self.dim] = unit
            rows[part, self.dim :] = self._ridge.coordinates(self._kernel(unit))
        return rows

    def _kernel(self, unit: Tensor) -> Tensor:
        """φ: (n, d) unit vectors -> (n, k) float64."""
        return gaussian_features(unit, self._centres, self.sigma)

    def unit_logits(self, unit: Tensor, members: Tensor | None = None) -> Tensor:
        psi = unit[:, self.dim :]
        scores = self._ridge.scores(psi)
        if members is not None:
            scores = self._ridge.leave_one_out(scores, psi, members, self._weight(members))
        return scores.mul_(self.scale)

    def _weight(self, columns: Tensor) -> Tensor:
        """How often rows of these classes (n,) count: (n,) float64."""
        novel = self.repeat / (1 + self.copies)
        return torch.where(columns < self.n_base, 1.0, novel).to(torch.float64)

    def _fit_base(
        self,
        features: Features,
        columns: Tensor,
        fakes: FakePool | None,
        holdout: Tensor | None,
    ) -> None:
        auto = is_auto(self.repeat_option)
        balanced = max(len(columns) / self.n_base / USUAL_SHOTS, 1.0)
        self.repeat = balanced if auto else float(self.repeat_option)
        self._solve(features, columns)
        self.scale = 1.0 if is_auto(self.scale_option) else float(self.scale_option)
        if is_auto(self.scale_option):
            scores, own = self._fair_scores(features, columns, holdout)
            self.scale = fit_scale(scores, own)

    def _fair_scores(
        self, features: Features, columns: Tensor, holdout: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Scores (m, B) of some base rows, as if not learned from, and their columns (m,)."""
        parts, owners = [], []
        generator = torch.Generator().manual_seed(self.seed)
        for judge, rows in fair_queries(self, features, columns, holdout, generator):
            own = columns[rows]
            members = own if judge.leave_out else None
            parts.append(judge.head.unit_logits(judge.head.embed(features[rows]), members))
            owners.append(own)
        return torch.cat(parts), torch.cat(owners)

    def _solve(self, features: Features, columns: Tensor, rows: Tensor | None = None) -> None:
        """Draw centres and solve, for all base rows or for `rows` (m,) alone."""
        generator = torch.Generator().manual_seed(self.seed)
        n = len(features) if rows is None else len(rows)
        drawn = draw_centres(n, self.n_centres, generator).to(features.device)
        self._centres = self.metric(features[drawn if rows is None else rows[drawn]])
        auto = is_auto(self.sigma_option)
        self.sigma = median_distance(self._centres, generator) if auto else float(self.sigma_option)
        size = len(self._centres)
        moved = draw_centres(n, self.copies, generator).to(features.device)
        moved = moved if rows is None else rows[moved]
        unit, own = self.metric(features[moved]), columns[moved]
        self._moves = unit - (self.table.sums[own] / self.table.counts[own, None]).to(unit.dtype)

        def kernels() -> Iterator[tuple[Tensor, Tensor]]:
            for part, own in parts_of(features, columns, rows):
                for some in chunks(len(part), size):
                    yield self._kernel(self.metric(part[some])), own[some]

        self._ridge = RidgeClassifier.solve(kernels(), self.n_base, size, self.ridge)

    def _refit(self, features: Features, columns: Tensor, rows: Tensor) -> None:
        super()._refit(features, columns, rows)
        self._solve(features, columns, rows)

    def _add(self, unit: Tensor, columns: Tensor) -> None:
        psi = unit[:, self.dim :]
        if self.copies:
            novel = columns >= self.n_base
            moved = normalise(unit[novel, None, : self.dim] + self._moves).flatten(0, 1)
            more = self._ridge.coordinates(self._kernel(moved)).to(psi)
            psi = torch.cat([psi, more])
            columns = torch.cat([columns, columns[novel].repeat_interleave(len(self._moves))])
        self._ridge = self._ridge.extended(psi, columns, self._weight(columns))

    def _forget(self, column: int) -> None:
        self._ridge = self._ridge.without(column)

    def config(self) -> dict[str, Any]:
        return {
            **super().config(),
            "scale": self.scale_option,
            "centres": self.n_centres,
            "sigma": self.sigma_option,
            "ridge": self.ridge,
            "repeat": self.repeat_option,
            "copies": self.copies,
            "seed": self.seed,
        }

    def state(self) -> State:
        state = super().state()
        state["meta"].update(scale=self.scale, sigma=self.sigma, repeat=self.repeat)
        solved = self._ridge
        state["tensors"].update(
            centres=self._centres,
            moves=self._moves,
            root=solved.root,
            weights=solved.weights,
            seen=solved.seen,
        )
        return state

    def _restore(self, state: State) -> None:
        meta, tensors = state["meta"], state["tensors"]
        self.scale, self.sigma, self.repeat = meta["scale"], meta["sigma"], meta["repeat"]
        self._centres, self._moves = tensors["centres"], tensors["moves"]
        self._ridge = RidgeClassifier(tensors["root"], tensors["weights"], tensors["seen"])


def _positive(name: str, value: float | str) -> float | str:
    """A positive number or "auto"."""
    if is_auto(value):
        return value
    if not (is_number(value) and 0 < float(value) < math.inf):
        raise InputError(f'{name} is {value!r}: give a positive number or "auto"')
    return float(value)
