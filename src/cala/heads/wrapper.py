"""A head around another one, its host: what is the same for every such head."""

from __future__ import annotations

from typing import Any

import numpy as np

from cala.core.cala import PrototypeTable
from cala.core.rows import Array
from cala.heads.base import Head
from cala.heads.base_data import BaseData, Scorer


class HeadWrapper(Head):
    """Classes, table and metric are the host's."""

    _host: Head

    @property
    def host(self) -> Head:
        return self._host

    @property
    def classes(self) -> tuple[int, ...]:  # type: ignore[override]
        return self._host.classes

    @property
    def n_base(self) -> int:  # type: ignore[override]
        return self._host.n_base

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self._host.dim

    @property
    def table(self) -> PrototypeTable:  # type: ignore[override]
        return self._host.table

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        return self._host.dtype

    @property
    def room(self) -> int | None:
        return self._host.room

    def prototypes_at(self, columns: Array) -> Array:
        return self._host.prototypes_at(columns)

    def embed(self, features: Array) -> Array:
        return self._host.embed(features)

    def scorers(self, data: BaseData) -> list[Scorer]:
        return self._host.scorers(data)
