"""Rows of embeddings: in memory or on disk, chunk by chunk, and grouped by class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

CHUNK = 2**21  # numbers per chunk: 16 MB in double precision


class StoredRows(ABC):
    """Rows (n, d) on disk, read as they are asked for; reading a part gives an array.

    shape, dtype : of the array that all rows would make
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any] = np.dtype(np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, rows: slice | Array) -> Array:
        """The rows of a slice, or at row numbers of any shape: (...) -> (..., d)."""

    @abstractmethod
    def where(self, rows: Array) -> StoredRows:
        """Some of the rows, not read yet: by a mask (n,) or by row numbers (m,)."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Tells rows of other values, or in another order, apart without reading them."""


Features: TypeAlias = NDArray[Any] | StoredRows
"""Embeddings (n, d), in memory or on disk."""


def where(features: Features, rows: Array) -> Features:
    """Some rows, by a mask (n,) or by row numbers (m,); what is on disk stays there."""
    return features.where(rows) if isinstance(features, StoredRows) else features[rows]


def loaded(features: Features) -> Array:
    """All rows in memory, for callers that have made sure that they fit."""
    return features[:] if isinstance(features, StoredRows) else features


def chunks(n: int, dim: int) -> Iterator[slice]:
    """Slices that cover `range(n)`, so that a large set never needs a second copy in memory.

    dim : numbers per row

    >>> list(chunks(5, CHUNK // 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = max(1, CHUNK // max(dim, 1))
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def parts_of(
    features: Features, columns: Array, rows: Array | None = None
) -> Iterator[tuple[Array, Array]]:
    """Rows (n, d) and their columns (n,) chunk by chunk; with `rows` (m,) those alone."""
    n = len(features) if rows is None else len(rows)
    for part in chunks(n, features.shape[1]):
        chosen = part if rows is None else rows[part]
        yield features[chosen], columns[chosen]


@dataclass(frozen=True)
class ClassRows:
    """Row numbers grouped by class, in an order that does not depend on how the rows arrived.

    Whatever is drawn at random is drawn from this order, so that shuffled training data give the
    same fit.

    order : (m,) row numbers, class after class
    columns : (m,) the class of each of them, ascending
    n_classes : C
    """

    order: Array
    columns: Array
    n_classes: int

    @classmethod
    def of(cls, features: Features, columns: Array, n_classes: int) -> ClassRows:
        """Of all rows (n, d) with columns (n,)."""
        # One number per row that its values alone decide.
        probe = np.cos(np.arange(1, features.shape[1] + 1)).astype(features.dtype)
        keys = [features[part] @ probe for part in chunks(*features.shape)]
        order = np.lexsort((np.concatenate(keys), columns))
        return cls(order, columns[order], n_classes)

    def __len__(self) -> int:
        return len(self.order)

    @property
    def counts(self) -> Array:
        """(C,) rows of each class."""
        return np.bincount(self.columns, minlength=self.n_classes)

    @property
    def ranks(self) -> Array:
        """(m,) place of each row within its class: 0, 1, 2, …"""
        counts = self.counts
        return np.arange(len(self)) - (np.cumsum(counts) - counts)[self.columns]

    def where(self, mask: Array) -> ClassRows:
        """Those rows that a mask over all row numbers (n,) marks."""
        kept = mask[self.order]
        return ClassRows(self.order[kept], self.columns[kept], self.n_classes)

    def shuffled(self, rng: np.random.Generator) -> ClassRows:
        """The same rows in random order within each class."""
        order = np.lexsort((rng.random(len(self)), self.columns))
        return ClassRows(self.order[order], self.columns, self.n_classes)

    def draw(self, count: int, rng: np.random.Generator) -> ClassRows:
        """At most `count` rows of every class, at random."""
        mixed = self.shuffled(rng)
        kept = mixed.ranks < count
        return ClassRows(mixed.order[kept], self.columns[kept], self.n_classes)

    def thinned(self, most: int, rng: np.random.Generator) -> ClassRows:
        """At most `most` rows in all, at random."""
        if len(self) <= most:
            return self
        kept = np.sort(rng.permutation(len(self))[:most])
        return ClassRows(self.order[kept], self.columns[kept], self.n_classes)

    def folds(self, count: int, rng: np.random.Generator) -> list[ClassRows]:
        """`count` parts, each class spread evenly over them; a class's only row is in none.

        Taking one part away leaves a row of every class.
        """
        mixed = self.shuffled(rng)
        fold = np.where(self.counts[self.columns] > 1, mixed.ranks % count, -1)
        return [
            ClassRows(mixed.order[fold == i], self.columns[fold == i], self.n_classes)
            for i in range(count)
        ]
