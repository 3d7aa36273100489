"""A Gaussian kernel as features: how near a row is to each of k centres (GKEAL)."""

from __future__ import annotations

import torch
from torch import Tensor

MEDIAN_ROWS = 1000  # a median needs no more; their distances are a matrix of so many squared


def gaussian_features(rows: Tensor, centres: Tensor, sigma: float) -> Tensor:
    """φ_k(x) = exp(−‖x − c_k‖² / 2σ²): rows (n, d), centres (k, d) -> (n, k) float64.

    >>> gaussian_features(torch.tensor([[0.0]]), torch.tensor([[0.0], [2.0]]), sigma=1.0)
    tensor([[1.0000, 0.1353]], dtype=torch.float64)
    """
    rows, centres = rows.to(torch.float64), centres.to(torch.float64)
    squared = torch.addmm(centres.square().sum(1), rows, centres.T, alpha=-2)
    squared += rows.square().sum(1, keepdim=True)
    return squared.clamp_min_(0).div_(-2 * sigma**2).exp_()


def draw_centres(n: int, count: int, generator: torch.Generator) -> Tensor:
    """Which of n rows become centres: (min(n, count),), drawn from all of them without repeats."""
    return torch.randperm(n, generator=generator)[:count]


def median_distance(rows: Tensor, generator: torch.Generator) -> float:
    """Median distance between two of the rows (n, d): the usual width of a kernel; 1 if it is 0.

    >>> median_distance(torch.tensor([[0.0], [3.0]]), torch.Generator())
    3.0
    """
    rows = rows[draw_centres(len(rows), MEDIAN_ROWS, generator).to(rows.device)]
    distances = torch.pdist(rows.to(torch.float64))
    median = float(distances.median()) if len(distances) else 0.0
    return median if median > 1e-9 else 1.0
