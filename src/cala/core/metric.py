"""The space in which cosines are taken, learned from base classes only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from cala.core.prototypes import PrototypeTable, normalise, parts_of
from cala.core.stored_rows import Features
from cala.registry import check_choice


class Metric(Protocol):
    """Maps embeddings (n, d) to unit vectors (n, d)."""

    name: ClassVar[str]

    def __call__(self, features: Tensor) -> Tensor: ...

    def tensors(self) -> dict[str, Tensor]:
        """What was learned: the constructor's arguments."""
        ...


class CosineMetric:
    """The paper's: unit length, nothing else."""

    name: ClassVar[str] = "cosine"

    def __call__(self, features: Tensor) -> Tensor:
        return normalise(features)

    def tensors(self) -> dict[str, Tensor]:
        return {}


class WhitenedMetric:
    """Signed square root, centring and whitening with the base classes' own scatter.

    The square root evens out a few dominant features, the base mean carries nothing about any
    class, and directions in which the images of one class scatter count less.

    mean : (d,); matrix : (d, d), a root of the inverse of the shrunk within-class covariance
    """

    name: ClassVar[str] = "whitened"

    def __init__(self, mean: Tensor, matrix: Tensor) -> None:
        self.mean = mean
        self.matrix = matrix

    def __call__(self, features: Tensor) -> Tensor:
        # Centred rows have unit length too, where scatter is learned; here their length is lost.
        return _normalise_(_rooted(features).sub_(self.mean) @ self.matrix)

    def tensors(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "matrix": self.matrix}


METRICS: dict[str, type[CosineMetric] | type[WhitenedMetric]] = {
    metric.name: metric for metric in (CosineMetric, WhitenedMetric)
}


def fit_metric(
    name: str,
    features: Features,
    columns: Tensor,
    shrinkage: float | str = "auto",
    rows: Tensor | None = None,
) -> Metric:
    """The named metric, learned from base features (n, d) and their classes (n,).

    rows : (m,) learn from these rows alone
    """
    check_choice("metric", name, METRICS)
    kind = METRICS[name]
    if issubclass(kind, WhitenedMetric):
        mean, matrix = fit_whitening(features, columns, shrinkage, rows)
        return kind(mean.to(features.dtype), matrix.to(features.dtype))
    return kind()


def restore_metric(name: str, tensors: dict[str, Tensor]) -> Metric:
    """The metric that `Metric.tensors` came from."""
    check_choice("metric", name, METRICS)
    return METRICS[name](**tensors)


def fit_whitening(
    features: Features,
    columns: Tensor,
    shrinkage: float | str = "auto",
    rows: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Base mean (d,) and a root W (d, d) of (Σ_w + shrinkage·(tr Σ_w / d)·I)⁻¹ = W·Wᵀ.

    Σ_w is the pooled within-class covariance of the rooted, centred rows.

    features : (n, d); columns : (n,) class of each row, 0..C-1
    shrinkage : a number, or "auto" for `default_shrinkage`
    rows : (m,) learn from these rows alone
    """
    n, dim = len(features) if rows is None else len(rows), features.shape[1]
    mean = torch.zeros(dim, dtype=torch.float64, device=features.device)
    for part, _ in parts_of(features, columns, rows):
        mean += _rooted(part).sum(0, dtype=torch.float64)
    mean /= n

    moment = torch.zeros(dim, dim, dtype=torch.float64, device=features.device)

    def centred_parts() -> Iterator[tuple[Tensor, Tensor]]:
        for part, own in parts_of(features, columns, rows):
            centred = _normalise_(_rooted(part).to(torch.float64).sub_(mean))
            moment.addmm_(centred.T, centred)
            yield centred, own

    table = PrototypeTable.of(centred_parts(), int(columns.max()) + 1, dim)
    freedom = max(n - len(table), 1)
    within = (moment - table.sums.T @ table.means) / freedom
    level = float(within.diagonal().mean())
    if level <= 1e-12:  # one image per class: nothing is known about scatter
        return mean, torch.eye(dim, dtype=torch.float64, device=features.device)
    factor = default_shrinkage(dim, freedom) if isinstance(shrinkage, str) else shrinkage
    identity = torch.eye(dim, dtype=torch.float64, device=features.device)
    # Any root of the inverse gives the same cosines; the triangular one is ten times cheaper
    # than the symmetric one. The second term keeps it defined where shrinkage is 0.
    root = torch.linalg.cholesky(within + (factor + 1e-9) * level * identity)
    return mean, torch.linalg.solve_triangular(root, identity, upper=False).T.contiguous()


def default_shrinkage(dim: int, freedom: int) -> float:
    """0.5 where images abound, more where a d×d covariance is estimated from few of them.

    >>> default_shrinkage(64, 29940), default_shrinkage(1280, 300)
    (0.6387..., 6.6967...)
    """
    return float(0.5 + 3 * (dim / freedom) ** 0.5)


def _rooted(features: Tensor) -> Tensor:
    return _normalise_(features.abs().sqrt_().mul_(features.sign()))  # ONNX has no copysign


def _normalise_(x: Tensor) -> Tensor:
    """`normalise` in place, for what is a temporary anyway."""
    return x.div_(torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min_(1e-12))
