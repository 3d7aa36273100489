"""Which base rows may serve as queries."""

from __future__ import annotations

import torch
from torch import Tensor

from cala.heads.base import Head


def fair_rows(head: Head, columns: Tensor, holdout: Tensor | None) -> Tensor:
    """(n,) bool on the CPU: a class's held-out rows where it has any, else all, if it has several.

    A class's only row cannot be left out: nothing of the class would remain. A class without
    held-out rows takes part all the same: where few classes stand for all of base, base seems to
    have nothing to lose, and β has no bound.
    """
    several = (head.table.counts[columns] > 1).cpu()
    if holdout is None:
        return several
    held = several & holdout.cpu()
    return held | (several & ~_covered(columns, held)[columns.cpu()])


def coverage(head: Head, columns: Tensor, holdout: Tensor) -> tuple[int, int]:
    """How many base classes have held-out rows to serve as queries, and how many could have."""
    several = (head.table.counts[columns] > 1).cpu()
    held = several & holdout.cpu()
    return int(_covered(columns, held).sum()), int(_covered(columns, several).sum())


def _covered(columns: Tensor, rows: Tensor) -> Tensor:
    """(B,) bool: classes with one of the rows that the mask (n,) marks."""
    columns = columns.cpu()
    return torch.bincount(columns[rows], minlength=int(columns.max()) + 1) > 0
