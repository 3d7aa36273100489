"""GKEAL (Zhuang et al., CVPR 2023): a Gaussian kernel and ridge regression that only ever grows.

The textbook recursion keeps R = (ΦᵀΦ + γI)⁻¹ and W, and a session of rows X changes them by

    K = (I + X R Xᵀ)⁻¹,   R ← R − R Xᵀ K X R,   W ← W + R Xᵀ (Y − X W).

Here the same is done in coordinates ψ = L⁻¹φ with L Lᵀ = ΦᵀΦ + γI of the base rows. In them the
base session's R is the identity and every later one is I − UᵀU, so a session costs what its rows
cost (m²k instead of mk²) and nothing is ever inverted that is badly conditioned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from typing_extensions import Unpack

from cala.core._memory import AppendOnly
from cala.core.cala import normalise
from cala.core.rows import Array, chunks, parts_of
from cala.heads.base import State, Traits
from cala.heads.base_data import BaseData
from cala.heads.checks import check_number, is_auto, number_or_auto
from cala.heads.table import ScaledHead, ScaledOptions
from cala.systems.published import BENCHMARKS, Published

USUAL_SHOTS = 5  # with repeat="auto", this many shots weigh as much as a base class
PUBLISHED = dict.fromkeys(
    BENCHMARKS,
    Published(
        missing="the few-shot code is not public; of the authors' general code, γ = 0.1 is the "
        "default here, and a width of 10 means nothing for unit vectors"
    ),
)
MEDIAN_ROWS = 1000  # enough for a median; distances take this number squared


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


class Gkeal(ScaledHead):
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
    saved_values = ("scale", "sigma", "repeat")
    saved_arrays = ("_centres", "_moves")

    def __init__(
        self,
        *,
        centres: int = 500,
        sigma: float | str = "auto",
        ridge: float = 0.1,
        repeat: float | str = "auto",
        copies: int = 0,
        seed: int = 0,
        **common: Unpack[ScaledOptions],
    ) -> None:
        super().__init__(**common)
        self.copies = int(check_number("copies", copies, whole=True))
        self.seed = seed
        self.config.update(
            centres=int(check_number("centres", centres, 1, whole=True)),
            sigma=number_or_auto("sigma", sigma, above=True),
            ridge=check_number("ridge", ridge, above=True),
            repeat=number_or_auto("repeat", repeat, above=True),
            copies=self.copies,
            seed=seed,
        )
        self.sigma, self.repeat = 1.0, 1.0
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

    def _scores(self, unit: Array, members: Array | None) -> Array:
        psi = unit[:, self.dim :]
        scores = self._ridge.scores(psi)
        if members is not None:
            scores = self._ridge.leave_one_out(scores, psi, members, self._weight(members))
        return scores

    def _weight(self, columns: Array) -> Array:
        """How often rows of these classes (n,) count: (n,) float64."""
        return np.where(columns < self.n_base, 1.0, self.repeat / (1 + self.copies))

    def _fit_base(self, data: BaseData) -> None:
        balanced = max(len(data) / self.n_base / USUAL_SHOTS, 1.0)
        repeat = self.config["repeat"]
        self.repeat = balanced if is_auto(repeat) else repeat
        self._solve(data)
        super()._fit_base(data)

    def _solve(self, data: BaseData, rows: Array | None = None) -> None:
        """Draw centres and solve, for all base rows or for `rows` (m,) alone."""
        rng = np.random.default_rng(self.seed)
        order = data.rows.order
        if rows is not None:
            order = order[np.isin(order, rows)]
        drawn = order[draw_centres(len(order), self.config["centres"], rng)]
        self._centres = self.metric(data.features[drawn])
        sigma = self.config["sigma"]
        self.sigma = median_distance(self._centres, rng) if is_auto(sigma) else sigma
        moved = order[draw_centres(len(order), self.copies, rng)]
        unit = self.metric(data.features[moved])
        self._moves = unit - self.table.at(data.columns[moved]).means.astype(unit.dtype)
        size = len(self._centres)

        def kernels() -> Iterator[tuple[Array, Array]]:
            for part, own in parts_of(data.features, data.columns, rows):
                for some in chunks(len(part), size):
                    yield self._kernel(self.metric(part[some])), own[some]

        self._ridge = RidgeClassifier.solve(kernels(), self.n_base, size, self.config["ridge"])

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

    def state(self) -> State:
        state, solved = super().state(), self._ridge
        state["tensors"].update(root=solved.root, weights=solved.weights, seen=solved.seen)
        return state

    def _restore(self, state: State) -> None:
        arrays = state["tensors"]
        later = AppendOnly(arrays["seen"])
        self._ridge = RidgeClassifier(arrays["root"], arrays["weights"], later)
