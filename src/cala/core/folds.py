"""When a base row may judge the model that learned from it, and folds for when it may not.

A row can be left out of its own prototype by arithmetic, but not out of a metric that was
estimated from it. Where rows are few for the dimension, whitening makes the very rows it was
estimated from look far more separable than new ones: with 4 photos of 100 classes in 1,280
dimensions, leave-one-out accuracy is near 100 % and true accuracy near 57 %. Then the metric has
to be refitted without the rows it judges.
"""

from __future__ import annotations

import torch
from torch import Tensor

FOLDS = 5
TRUSTED_RATIO = 0.05  # of dimensions to degrees of freedom; CIFAR-100 with 64 dimensions: 0.002


def judges_itself_fairly(dim: int, rows: int, classes: int) -> bool:
    """Whether a d×d covariance of so many rows hardly knows any single one of them."""
    return dim <= TRUSTED_RATIO * max(rows - classes, 1)


def draw_folds(columns: Tensor, generator: torch.Generator, count: int = FOLDS) -> Tensor:
    """Fold of each row, 0..count-1, spread evenly over every class; -1 for a class's only row.

    Taking one fold away leaves a row of every class.

    columns : (n,) -> (n,)
    """
    columns = columns.cpu()
    shuffled = torch.randperm(len(columns), generator=generator)
    order = shuffled[columns[shuffled].argsort(stable=True)]
    counts = torch.bincount(columns)
    starts = counts.cumsum(0) - counts
    folds = torch.empty_like(columns)
    folds[order] = (torch.arange(len(columns)) - starts[columns[order]]) % count
    return torch.where(counts[columns] > 1, folds, -1)
