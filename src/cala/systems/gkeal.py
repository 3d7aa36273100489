"""GKEAL (Zhuang et al., CVPR 2023): a Gaussian kernel and ridge regression that only ever grows.

The textbook recursion keeps R = (ΦᵀΦ + γI)⁻¹ and W, and a session of rows X changes them by

    K = (I + X R Xᵀ)⁻¹,   R ← R − R Xᵀ K X R,   W ← W + R Xᵀ (Y − X W).

Here the same is done in coordinates ψ = L⁻¹φ with L Lᵀ = ΦᵀΦ + γI of the base rows. In them the
base session's R is the identity and every later one is I − UᵀU, so a session costs what its rows
cost (m²k instead of mk²) and nothing is ever inverted that is badly conditioned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cala.core._memory import AppendOnly
from cala.core.cala import normalise
from cala.core.calibration import fit_scale
from cala.core.rows import Array, chunks, parts_of
from cala.errors import InputError
from cala.heads.base import State, Traits
from cala.heads.base_data import BaseData
from cala.heads.checks import is_auto, is_number
from cala.heads.table import TableHead
from cala.systems.published import DATASETS, Published

USUAL_SHOTS = 5  # with repeat="auto" so many shots weigh as much as a base class
PUBLISHED = dict.fromkeys(
    DATASETS,
    Published(
        missing="the few-shot code is not public; of the authors' general code, γ = 0.1 is the "
        "default here, and a width of 10 means nothing for unit vectors"
    ),
)
MEDIAN_ROWS = 1000  # a median needs no more; their distances are a matrix of so many squared


# The kernel.


def gaussian_features(rows: Array, centres: Array, sigma: float) -> Array:
    """φ_k(x) = exp(−‖x − c_k‖² / 2σ²): rows (n, d), centres (k, d) -> (n, k) float64.

    >>> gaussian_features(np.array([[0.0]]), np.array([[0.0], [2.0]]), sigma=1.0).round(4)
    array([[1.    , 0.1353]])
    """
    rows, centres = rows.astype(np.float64), centres.astype(np.float64)
    squared = rows @ (-2 * centres).T
    squared += np.einsum("kd,kd->k", centres, centres)
    squared += np.einsum("nd,nd->n", rows, rows)[:, None]
    np.maximum(squared, 0, out=squared)
    squared /= -2 * sigma**2
    return np.exp(squared, out=squared)


def draw_centres(n: int, count: int, rng: np.random.Generator) -> Array:
    """Which of n rows become centres: (min(n, count),), drawn from all of them without repeats."""
    return rng.permutation(n)[:count]


def median_distance(rows: Array, rng: np.random.Generator) -> float:
    """Median distance between two of the rows (n, d): the usual width of a kernel; 1 if it is 0.

    >>> median_distance(np.array([[0.0], [3.0]]), np.random.default_rng(0))
    3.0
    """
    from scipy.spatial.distance import pdist

    distances = pdist(rows[draw_centres(len(rows), MEDIAN_ROWS, rng)].astype(np.float64))
    median = float(np.median(distances)) if len(distances) else 0.0
    return median if median > 1e-9 else 1.0


# Ridge regression on one-hot targets by recursive least squares.


@dataclass(frozen=True)
class RidgeClassifier:
    """All rows seen so far, as the ridge solution of them; immutable, so copies may share it.

    root : (k, k) L, lower triangular, of the base rows
    weights : (C, k) one row per class; scores are ψ·weightsᵀ
    later : (M, k) U, what later rows took from R; at most 2k rows
    """

    root: Array
    weights: Array
    later: AppendOnly

    @property
    def seen(self) -> Array:
        """U: (M, k)."""
        return self.later.rows

    @classmethod
    def solve(
        cls, parts: Iterable[tuple[Array, Array]], n_classes: int, size: int, ridge: float
    ) -> RidgeClassifier:
        """The solution for rows that come in parts: features φ (n, k) float64, columns (n,).

        size : k; ridge : γ
        """
        gram, sums = ridge * np.eye(size), np.zeros((n_classes, size))
        for phi, columns in parts:
            gram += phi.T @ phi
            np.add.at(sums, columns, phi)
        root = np.linalg.cholesky(gram)
        return cls(root, _solved(root, sums.T).T, AppendOnly(np.zeros((0, size))))

    def coordinates(self, phi: Array) -> Array:
        """ψ = L⁻¹φ, row by row: (n, k) -> (n, k)."""
        return _solved(self.root, phi.T).T

    def extended(self, psi: Array, columns: Array, weight: Array) -> RidgeClassifier:
        """Learn rows; columns past the end are new classes, which start from weights of zero.

        psi : (m, k) coordinates; columns : (m,) int64; weight : (m,) how often each row counts
        """
        size = psi.shape[1]
        new = max(int(columns.max()) + 1 - len(self.weights), 0)
        weights = np.concatenate([self.weights, np.zeros((new, size))])
        often = np.sqrt(weight)
        psi = psi * often[:, None]
        targets = np.zeros((len(psi), len(weights)))
        targets[np.arange(len(psi)), columns] = often
        gain = psi - (psi @ self.seen.T) @ self.seen  # X R
        inner = np.linalg.cholesky(np.eye(len(psi)) + gain @ psi.T)
        step = _solved(inner, gain)
        error = _solved(inner, targets - psi @ weights.T)
        later = self.later.appended(step)
        if len(later.rows) > 2 * size:
            later = AppendOnly(np.asarray(np.linalg.qr(later.rows, mode="r")))
        return RidgeClassifier(self.root, weights + error.T @ step, later)

    def without(self, column: int) -> RidgeClassifier:
        """One class removed. Its rows remain rows of none of the others, which stay as they are."""
        return replace(self, weights=np.delete(self.weights, column, axis=0))

    def scores(self, psi: Array) -> Array:
        """(n, k) coordinates -> (n, C), about 1 for the right class and 0 for others."""
        return psi @ self.weights.astype(psi.dtype, copy=False).T

    def leave_one_out(self, scores: Array, psi: Array, own: Array, weight: Array) -> Array:
        """Scores of each row by the solution without it: (ŷ − h·y) / (1 − h), h its leverage.

        scores : (n, C); psi : (n, k)
        own : (n,) the column that each row was learned with, -1 if it was not
        weight : (n,) how often it counted
        """
        rows = np.flatnonzero(own >= 0)
        mine = psi[rows]
        known = mine @ self.seen.astype(psi.dtype, copy=False).T
        leverage = np.einsum("nk,nk->n", mine, mine) - np.einsum("nm,nm->n", known, known)
        leverage = np.clip(weight[rows].astype(psi.dtype) * leverage, 0, 1 - 1e-6)
        result = scores.copy()
        result[rows, own[rows]] -= leverage
        result[rows] /= 1 - leverage[:, None]
        return result


def _solved(root: Array, right: Array) -> Array:
    """root⁻¹·right of a lower triangular root."""
    from scipy.linalg import solve_triangular

    return np.asarray(solve_triangular(root, right, lower=True, check_finite=False))


# The head.


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
    traits: ClassVar[Traits] = Traits(old_columns_stay=False)

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
        empty = np.zeros((0, 0))
        self._centres = empty  # (k, d)
        self._moves = empty  # (copies, d)
        self._ridge = RidgeClassifier(empty, empty, AppendOnly(empty))

    def embed(self, features: Array) -> Array:
        width = self.dim + len(self._centres)
        rows = np.empty((len(features), width), features.dtype)
        for part in chunks(len(features), width):
            unit = self.metric(features[part])
            rows[part, : self.dim] = unit
            rows[part, self.dim :] = self._ridge.coordinates(self._kernel(unit))
        return rows

    def _kernel(self, unit: Array) -> Array:
        """φ: (n, d) unit vectors -> (n, k) float64."""
        return gaussian_features(unit, self._centres, self.sigma)

    def unit_logits(self, unit: Array, members: Array | None = None) -> Array:
        psi = unit[:, self.dim :]
        scores = self._ridge.scores(psi)
        if members is not None:
            scores = self._ridge.leave_one_out(scores, psi, members, self._weight(members))
        scores *= self.scale
        return scores

    def _weight(self, columns: Array) -> Array:
        """How often rows of these classes (n,) count: (n,) float64."""
        return np.where(columns < self.n_base, 1.0, self.repeat / (1 + self.copies))

    def _fit_base(self, data: BaseData) -> None:
        balanced = max(len(data) / self.n_base / USUAL_SHOTS, 1.0)
        self.repeat = balanced if is_auto(self.repeat_option) else float(self.repeat_option)
        self._solve(data)
        if not is_auto(self.scale_option):
            self.scale = float(self.scale_option)
            return
        self.scale = fit_scale(*self._unbiased_scores(data))
        for scorer in data.scorers(self):
            scorer.head.scale = self.scale

    def _unbiased_scores(self, data: BaseData) -> tuple[Array, Array]:
        """Scores (m, B) of some base rows, as if not learned from, and their columns (m,)."""
        parts, owners = [], []
        for scorer, rows, own in data.scale_rows(self):
            head = scorer.head
            scores = np.empty((len(rows), self.n_base), self.dtype)
            for part in chunks(len(rows), self.dim + len(head._centres)):
                members = own[part] if scorer.leave_out else None
                scores[part] = head.unit_logits(head.embed(data.features[rows[part]]), members)
            parts.append(scores)
            owners.append(own)
        return np.concatenate(parts), np.concatenate(owners)

    def _solve(self, data: BaseData, rows: Array | None = None) -> None:
        """Draw centres and solve, for all base rows or for `rows` (m,) alone."""
        rng = np.random.default_rng(self.seed)
        order = data.rows.order
        if rows is not None:
            order = order[np.isin(order, rows)]
        drawn = order[draw_centres(len(order), self.n_centres, rng)]
        self._centres = self.metric(data.features[drawn])
        auto = is_auto(self.sigma_option)
        self.sigma = median_distance(self._centres, rng) if auto else float(self.sigma_option)
        moved = order[draw_centres(len(order), self.copies, rng)]
        unit = self.metric(data.features[moved])
        self._moves = unit - self.table.at(data.columns[moved]).means.astype(unit.dtype)
        size = len(self._centres)

        def kernels() -> Iterator[tuple[Array, Array]]:
            for part, own in parts_of(data.features, data.columns, rows):
                for some in chunks(len(part), size):
                    yield self._kernel(self.metric(part[some])), own[some]

        self._ridge = RidgeClassifier.solve(kernels(), self.n_base, size, self.ridge)

    def _refit(self, data: BaseData, rows: Array) -> None:
        super()._refit(data, rows)
        self._solve(data, rows)

    def _add(self, unit: Array, columns: Array) -> None:
        psi = unit[:, self.dim :]
        if self.copies:
            novel = columns >= self.n_base
            moved = normalise(unit[novel, None, : self.dim] + self._moves).reshape(-1, self.dim)
            psi = np.concatenate([psi, self._ridge.coordinates(self._kernel(moved))])
            columns = np.concatenate([columns, np.repeat(columns[novel], len(self._moves))])
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
        later = AppendOnly(tensors["seen"])
        self._ridge = RidgeClassifier(tensors["root"], tensors["weights"], later)


def _positive(name: str, value: float | str) -> float | str:
    """A positive number or "auto"."""
    if is_auto(value):
        return value
    if not (is_number(value) and 0 < float(value) < math.inf):
        raise InputError(f'{name} is {value!r}: give a positive number or "auto"')
    return float(value)
