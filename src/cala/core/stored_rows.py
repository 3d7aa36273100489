"""Embeddings that need not be in memory: what learning from base rows asks of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeAlias

import torch
from torch import Tensor


class StoredRows(ABC):
    """Rows (n, d) that are read as they are asked for; reading a part gives a tensor.

    shape, dtype, device : of the tensor that all rows would make
    """

    shape: tuple[int, int]
    dtype: torch.dtype = torch.float32
    device: torch.device = torch.device("cpu")

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        """The rows of a slice, or at row numbers of any shape: (...) -> (..., d)."""

    @abstractmethod
    def where(self, rows: Tensor) -> StoredRows:
        """Some of the rows, not read yet: by a mask (n,) or by row numbers (m,)."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Tells rows of other values, or in another order, apart without reading them."""


Features: TypeAlias = Tensor | StoredRows
"""Embeddings (n, d), in memory or not."""


def where(features: Features, rows: Tensor) -> Features:
    """Some rows, by a mask (n,) or by row numbers (m,); what is not in memory stays there."""
    return features[rows] if isinstance(features, Tensor) else features.where(rows)


def loaded(features: Features) -> Tensor:
    """All rows in memory, for whoever has made sure that they fit."""
    return features if isinstance(features, Tensor) else features[:]
