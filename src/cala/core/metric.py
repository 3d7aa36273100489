"""The space in which cosines are taken: as it is (`cosine`), or `whitened` by base statistics."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from cala.core.prototypes import PrototypeTable, chunks, normalise
from cala.registry import check_choice

METRICS = ("cosine", "whitened")


class Metric(Protocol):
    """Maps embeddings (n, d) to unit vectors (n, d); learned from base classes only."""

    name: str

    def __call__(self, features: Tensor) -> Tensor: ...

    def tensors(self) -> dict[str, Tensor]: ...


class CosineMetric:
    """The paper's: unit length, nothing else."""

    name = "cosine"

    def __call__(self, features: Tensor) -> Tensor:
        return normalise(features)

    def tensors(self) -> dict[str, Tensor]:
        return {}


class WhitenedMetric:
    """Signed square root, centring and whitening with the base classes' own scatter.

    The square root evens out a few dominant features, the base mean carries nothing about any
    class, and directions in which the images of one class scatter count less.

    mean : (d,); matrix : (d, d), the inverse square root of the shrunk within-class covariance
    """

    name = "whitened"

    def __init__(self, mean: Tensor, matrix: Tensor) -> None:
        self.mean = mean
        self.matrix = matrix

    def __call__(self, features: Tensor) -> Tensor:
        centred = normalise(_rooted(features) - self.mean.to(features.dtype))
        return normalise(centred @ self.matrix.to(features.dtype))

    def tensors(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "matrix": self.matrix}


def fit_whitened(features: Tensor, columns: Tensor, shrinkage: float = 2.0) -> WhitenedMetric:
    """Learn the whitened metric: Σ_w + shrinkage·(tr Σ_w / d)·I of the rooted, centred rows.

    features : (n, d); columns : (n,) class of each row, 0..C-1
    """
    n, dim = features.shape
    mean = features.new_zeros(dim, dtype=torch.float64)
    for rows in chunks(n):
        mean += _rooted(features[rows]).to(torch.float64).sum(0)
    mean /= n

    table = PrototypeTable.empty(dim, features.device)
    moment = features.new_zeros(dim, dim, dtype=torch.float64)
    for rows in chunks(n):
        centred = normalise(_rooted(features[rows]).to(torch.float64) - mean)
        table = table.extended(centred, columns[rows])
        moment += centred.T @ centred
    within = (moment - table.sums.T @ table.means) / max(n - len(table), 1)
    level = float(within.diagonal().mean())
    if level <= 1e-12:  # one image per class: nothing is known about scatter
        return WhitenedMetric(mean, torch.eye(dim, dtype=torch.float64, device=features.device))
    values, vectors = torch.linalg.eigh(within)
    scale = (values.clamp_min(0) + shrinkage * level).clamp_min(1e-12).rsqrt()
    return WhitenedMetric(mean, (vectors * scale) @ vectors.T)


def fit_metric(name: str, features: Tensor, columns: Tensor, shrinkage: float = 2.0) -> Metric:
    """The named metric, learned from base features (n, d) and their classes (n,)."""
    check_choice("metric", name, METRICS)
    return CosineMetric() if name == "cosine" else fit_whitened(features, columns, shrinkage)


def restore_metric(name: str, tensors: dict[str, Tensor]) -> Metric:
    """The metric that `Metric.tensors` came from."""
    check_choice("metric", name, METRICS)
    return CosineMetric() if name == "cosine" else WhitenedMetric(**tensors)


def _rooted(features: Tensor) -> Tensor:
    return normalise(features.sign() * features.abs().sqrt())
