"""Class prototypes (Eq. 2) and the table of them that only ever grows (Eq. 3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from cala.core.growing import GrowingRows
from cala.core.stored_rows import Features

CHUNK = 2**21  # numbers per chunk: 16 MB in double precision


def normalise(x: Tensor) -> Tensor:
    """Scale the last axis to unit length; a zero vector stays zero.

    >>> normalise(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """
    return torch.nn.functional.normalize(x, dim=-1, eps=1e-12)


def chunks(n: int, dim: int) -> Iterator[slice]:
    """Slices that cover `range(n)`, so that a large set never needs a second copy in memory.

    dim : numbers per row

    >>> list(chunks(5, CHUNK // 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = max(1, CHUNK // max(dim, 1))
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def parts_of(
    features: Features, columns: Tensor, rows: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows (n, d) and their columns (n,) chunk by chunk; with `rows` (m,) those alone."""
    n = len(features) if rows is None else len(rows)
    for part in chunks(n, features.shape[1]):
        chosen = part if rows is None else rows[part]
        yield features[chosen], columns[chosen]


class PrototypeTable:
    """Sums and counts of unit vectors per class: enough for means, leave-one-out and tightness.

    Immutable: `extended` returns a new table, so copies may share it.

    sums : (C, d) float64, the sum of each class's unit vectors
    counts : (C,) int64
    """

    def __init__(self, sums: Tensor, counts: Tensor) -> None:
        self._sums, self._counts = GrowingRows(sums), GrowingRows(counts)

    @classmethod
    def empty(cls, dim: int, device: torch.device | str = "cpu") -> PrototypeTable:
        return cls(
            torch.zeros(0, dim, dtype=torch.float64, device=device),
            torch.zeros(0, dtype=torch.int64, device=device),
        )

    @classmethod
    def of(cls, parts: Iterable[tuple[Tensor, Tensor]], n_classes: int, dim: int) -> PrototypeTable:
        """The table of rows that come in parts: unit vectors (n, d) and their columns (n,)."""
        table = cls.empty(dim)
        for unit, columns in parts:
            if not len(table):
                device = unit.device
                sums = torch.zeros(n_classes, dim, dtype=torch.float64, device=device)
                table = cls(sums, torch.zeros(n_classes, dtype=torch.int64, device=device))
            table._fold(unit, columns)
        return table

    @classmethod
    def of_one(cls, unit: Tensor) -> PrototypeTable:
        """The table of one class with shots (K, d).

        >>> PrototypeTable.of_one(torch.tensor([[1.0, 0.0], [0.0, 1.0]])).means
        tensor([[0.5000, 0.5000]], dtype=torch.float64)
        """
        shots = torch.ones_like(unit[:, :1], dtype=torch.int64)
        return cls(unit.to(torch.float64).sum(0, keepdim=True), shots.sum(0))

    @property
    def sums(self) -> Tensor:
        return self._sums.rows

    @property
    def counts(self) -> Tensor:
        return self._counts.rows

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def means(self) -> Tensor:
        """Eq. 2, with embeddings normalised before they are averaged: (C, d) float64."""
        return self.sums / self.counts[:, None]

    @property
    def tightness(self) -> Tensor:
        """Mean pairwise cosine among each class's shots: (C,) float64, NaN for a single shot.

        With unit vectors the pairwise sum is |sum|² − K, so no shot needs to be kept.
        """
        k = self.counts.to(torch.float64)
        pairs = k * (k - 1)
        return torch.where(pairs > 0, (self.sums.square().sum(1) - k) / pairs, torch.nan)

    def extended(self, unit: Tensor, columns: Tensor) -> PrototypeTable:
        """Eq. 3: fold rows into the given columns; columns past the end are new classes.

        Adding new classes costs no more than they hold; folding into old ones copies the table.

        unit : (n, d) unit vectors; columns : (n,) int64
        """
        old, size = len(self), max(len(self), int(columns.max()) + 1) if len(columns) else len(self)
        sums = self._sums.appended(self.sums.new_zeros(size - old, self.sums.shape[1]))
        counts = self._counts.appended(self.counts.new_zeros(size - old))
        if bool((columns < old).any()):
            sums, counts = GrowingRows(sums.rows.clone()), GrowingRows(counts.rows.clone())
        table = PrototypeTable.__new__(PrototypeTable)
        table._sums, table._counts = sums, counts
        table._fold(unit, columns)
        return table

    def _fold(self, unit: Tensor, columns: Tensor) -> None:
        """Add rows in place: only before anyone else has seen the table."""
        for rows in chunks(*unit.shape):
            self.sums.index_add_(0, columns[rows], unit[rows].to(torch.float64))
        self.counts.index_add_(0, columns, torch.ones_like(columns))

    def at(self, columns: Tensor) -> PrototypeTable:
        """The table of some columns only."""
        return PrototypeTable(self.sums[columns], self.counts[columns])

    def without(self, column: int) -> PrototypeTable:
        """The table with one class removed."""
        keep = torch.arange(len(self), device=self.counts.device) != column
        return self.at(keep)


def class_means(features: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """Eq. 2: normalise each embedding, then average per class. Returns (n_classes, d) float64.

    >>> class_means(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]), 1)
    tensor([[0.5000, 0.5000]], dtype=torch.float64)
    """
    table = PrototypeTable.empty(features.shape[1], features.device)
    means = table.extended(normalise(features), labels)
    if len(means) != n_classes or bool((means.counts == 0).any()):
        raise ValueError(f"labels must cover every class in 0..{n_classes - 1}")
    return means.means
