"""A head around another one, its host: what is the same for every such head."""

from __future__ import annotations

import torch
from torch import Tensor

from cala.core.prototypes import PrototypeTable
from cala.heads.base import Head


class AroundHead(Head):
    """Classes, table and metric are the host's."""

    host: Head

    @property
    def classes(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.host.classes

    @property
    def n_base(self) -> int:  # type: ignore[override]
        return self.host.n_base

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.host.dim

    @property
    def table(self) -> PrototypeTable:  # type: ignore[override]
        return self.host.table

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        return self.host.dtype

    @property
    def linear(self) -> bool:  # type: ignore[override]
        return self.host.linear

    @property
    def room(self) -> int | None:
        return self.host.room

    def prototypes_at(self, columns: Tensor) -> Tensor:
        return self.host.prototypes_at(columns)

    def embed(self, features: Tensor) -> Tensor:
        return self.host.embed(features)
