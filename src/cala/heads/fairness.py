"""Which base rows may serve as queries."""

from __future__ import annotations

from torch import Tensor

from cala.heads.base import Head


def fair_rows(head: Head, columns: Tensor, holdout: Tensor | None) -> Tensor:
    """(n,) bool on the CPU: held-out rows where there are any, else all, of classes with several.

    A class's only row cannot be left out: nothing of the class would remain.
    """
    several = (head.table.counts[columns] > 1).cpu()
    return several if holdout is None else several & holdout.cpu()
