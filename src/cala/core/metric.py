"""The space in which cosines are taken, learned from base classes only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Protocol

import numpy as np

from cala.core.cala import PrototypeTable, normalise
from cala.core.rows import Array, Features, parts_of

FEW_ROWS = 0.5  # per dimension: below, their span is cheaper to work in than all dimensions
TINY_SCATTER = 1e-12
NEVER_ZERO = 1e-9  # keeps the inverse defined where shrinkage is 0


class Metric(Protocol):
    """Maps embeddings (n, d) to unit vectors (n, d)."""

    name: ClassVar[str]

    def __call__(self, features: Array) -> Array: ...

    def arrays(self) -> dict[str, Array]:
        """What was learned: the constructor's arguments."""
        ...


class CosineMetric:
    """The paper's: unit length, nothing else."""

    name: ClassVar[str] = "cosine"

    def __call__(self, features: Array) -> Array:
        return normalise(features)

    def arrays(self) -> dict[str, Array]:
        return {}


class WhitenedMetric:
    """Signed square root, centring and whitening with the base classes' own scatter.

    The square root evens out a few dominant features, the base mean carries nothing about any
    class, and directions in which the images of one class scatter count less.

    mean : (d,); matrix : (d, d), a root of the inverse of the shrunk within-class covariance
    """

    name: ClassVar[str] = "whitened"

    def __init__(self, mean: Array, matrix: Array) -> None:
        self.mean = mean
        self.matrix = matrix

    def __call__(self, features: Array) -> Array:
        # Centred rows have unit length too, where scatter is learned; here their length is lost.
        rows = rooted(features)
        rows -= self.mean
        return normalise(rows @ self.matrix)

    def arrays(self) -> dict[str, Array]:
        return {"mean": self.mean, "matrix": self.matrix}


METRICS: dict[str, type[CosineMetric] | type[WhitenedMetric]] = {
    metric.name: metric for metric in (CosineMetric, WhitenedMetric)
}


def fit_metric(
    name: str,
    features: Features,
    columns: Array,
    shrinkage: float | str = "auto",
    rows: Array | None = None,
) -> Metric:
    """The named metric, learned from base features (n, d) and their classes (n,).

    rows : (m,) learn from these rows alone
    """
    if name == "cosine":
        return CosineMetric()
    learned = fit_whitening(features, columns, shrinkage, rows)
    return WhitenedMetric(*(array.astype(features.dtype) for array in learned))


def restore_metric(name: str, arrays: dict[str, Array]) -> Metric:
    """The metric that `Metric.arrays` came from."""
    return METRICS[name](**arrays)


def fit_whitening(
    features: Features,
    columns: Array,
    shrinkage: float | str = "auto",
    rows: Array | None = None,
) -> tuple[Array, Array]:
    """Base mean (d,) and a root W (d, d) of (Σ_w + shrinkage·(tr Σ_w / d)·I)⁻¹ = W·Wᵀ.

    Σ_w is the pooled within-class covariance of the rooted, centred rows.

    features : (n, d); columns : (n,) class of each row, 0..C-1
    shrinkage : a number, or "auto" for `default_shrinkage`
    rows : (m,) learn from these rows alone
    """
    n, dim = len(features) if rows is None else len(rows), features.shape[1]
    mean = np.zeros(dim)
    for part, _ in parts_of(features, columns, rows):
        mean += rooted(part).sum(0, dtype=np.float64)
    mean /= n

    few = n < FEW_ROWS * dim
    moment = np.zeros((0, 0) if few else (dim, dim))
    kept: list[tuple[Array, Array]] = []

    def centred_parts() -> Iterator[tuple[Array, Array]]:
        for part, own in parts_of(features, columns, rows):
            centred = normalise(rooted(part).astype(np.float64) - mean)
            if few:
                kept.append((centred, own))
            else:
                np.add(moment, centred.T @ centred, out=moment)
            yield centred, own

    table = PrototypeTable.of(centred_parts(), int(columns.max()) + 1, dim)
    present = table.counts > 0
    freedom = max(n - int(present.sum()), 1)
    factor = default_shrinkage(dim, freedom) if isinstance(shrinkage, str) else shrinkage
    if few:
        means = table.sums / np.maximum(table.counts, 1)[:, None]
        residuals = np.concatenate([centred - means[own] for centred, own in kept])
        return mean, _root_of_few(residuals / freedom**0.5, factor)
    table = table.at(present)
    return mean, _root((moment - table.sums.T @ table.means) / freedom, factor)


def _root(within: Array, factor: float) -> Array:
    """A root W of (Σ + factor·(tr Σ / d)·I)⁻¹ = W·Wᵀ for a covariance Σ (d, d).

    Any root gives the same cosines; the triangular one is ten times cheaper than the symmetric one.
    """
    from scipy.linalg import solve_triangular

    identity, level = np.eye(len(within)), float(within.diagonal().mean())
    if level <= TINY_SCATTER:  # one image per class: nothing is known about scatter
        return identity
    root = np.linalg.cholesky(within + (factor + NEVER_ZERO) * level * identity)
    return np.ascontiguousarray(solve_triangular(root, identity, lower=True).T)


def _root_of_few(rows: Array, factor: float) -> Array:
    """The same, symmetric, for Σ = rowsᵀ·rows of few rows (n, d): they span all it knows.

    Outside their span Σ is 0, so the root is a multiple of the identity but for n directions.
    """
    dim = rows.shape[1]
    values, vectors = np.linalg.eigh(rows @ rows.T)
    level = float(values.sum()) / dim
    if level <= TINY_SCATTER:
        return np.eye(dim)
    ridge = (factor + NEVER_ZERO) * level
    known = values > values[-1] * 1e-12
    values, vectors = values[known], vectors[:, known]
    directions = rows.T @ (vectors / np.sqrt(values))
    gains = np.sqrt(ridge / (values + ridge)) - 1
    return (np.eye(dim) + (directions * gains) @ directions.T) / ridge**0.5


def default_shrinkage(dim: int, freedom: int) -> float:
    """0.5 where images abound, more where a d×d covariance is estimated from few of them.

    >>> default_shrinkage(64, 29940), default_shrinkage(1280, 300)
    (0.6387..., 6.6967...)
    """
    return float(0.5 + 3 * (dim / freedom) ** 0.5)


def rooted(features: Array) -> Array:
    """Signed square roots of unit length: a new array."""
    rows = np.abs(features)
    np.sqrt(rows, out=rows)
    np.copysign(rows, features, out=rows)
    return normalise(rows)
