"""Which base rows may serve as queries."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from cala.core.pseudo import draw_base_queries
from cala.core.stored_rows import Features
from cala.heads.base import Head, Judge

SCALE_ROWS_PER_CLASS = 50
SCALE_SCORES = 2**24  # rows × classes at the most: a scale needs no more, and memory has an end


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


def fair_queries(
    head: Head,
    features: Features,
    columns: Tensor,
    holdout: Tensor | None,
    generator: torch.Generator,
) -> Iterator[tuple[Judge, Tensor]]:
    """Some fair base rows (m,) for each judge, up to 50 per class: enough to fit a scale on."""
    usable = fair_rows(head, columns, holdout)
    judges = head.judges(features, columns, generator)
    most = max(SCALE_SCORES // (head.n_base * len(judges)), 1)
    for judge in judges:
        rows = judge.rows[usable[judge.rows]]
        rows = rows[draw_base_queries(columns.cpu()[rows], SCALE_ROWS_PER_CLASS, generator)]
        if len(rows) > most:
            rows = rows[torch.randperm(len(rows), generator=generator)[:most]]
        yield judge, rows.to(columns.device)


def coverage(head: Head, columns: Tensor, holdout: Tensor) -> tuple[int, int]:
    """How many base classes have held-out rows to serve as queries, and how many could have."""
    several = (head.table.counts[columns] > 1).cpu()
    held = several & holdout.cpu()
    return int(_covered(columns, held).sum()), int(_covered(columns, several).sum())


def _covered(columns: Tensor, rows: Tensor) -> Tensor:
    """(B,) bool: classes with one of the rows that the mask (n,) marks."""
    columns = columns.cpu()
    return torch.bincount(columns[rows], minlength=int(columns.max()) + 1) > 0
