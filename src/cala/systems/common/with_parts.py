"""Heads that need what was trained together with the encoder."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import nn
from typing_extensions import Self, Unpack

from cala.core.rows import Array
from cala.errors import InputError
from cala.heads.base import State, Traits
from cala.heads.base_data import BaseData
from cala.heads.nearest_mean import ClassMeans
from cala.heads.table import ScaledOptions, part_of

PREFIX = "part."

Module = TypeVar("Module", bound=nn.Module)


class HeadWithParts(ClassMeans):
    """Template: class means, and logits that some trained `parts` make of them.

    The parts were trained with the encoder's own embeddings, so the metric is their cosine, and
    logits of old classes move when new ones arrive.

    parts : arrays by name, as `cala train --method NAME` writes them beside the encoder
    """

    traits: ClassVar[Traits] = ClassMeans.traits._replace(
        old_columns_stay=False, metrics=("cosine",), needs_parts=True
    )

    def __init__(
        self, *, parts: Mapping[str, Array] | None = None, **common: Unpack[ScaledOptions]
    ) -> None:
        super().__init__(**common)
        self.parts = dict(parts or {})

    @classmethod
    @abstractmethod
    def part_shapes(cls, dim: int) -> dict[str, tuple[int | None, ...]]:
        """Names and shapes of the parts for embeddings of d dimensions; None is any number."""

    @abstractmethod
    def _take_parts(self) -> None:
        """Make what inference works with from `parts`; names and shapes are right already."""

    def fit_base(self, data: BaseData) -> Self:
        self.check_parts(data.dim)
        return super().fit_base(data)

    def check_parts(self, dim: int) -> None:
        """Raise unless the parts fit embeddings of d dimensions."""
        wanted = self.part_shapes(dim)
        if not wanted.keys() <= self.parts.keys():
            raise InputError(
                f"{self.name} needs what is trained together with its encoder",
                f"make one with `cala train DATA -o DIR --method {self.name}` and give it as "
                f"--encoder {self.name}=DIR",
                field="parts",
                code="missing_parts",
            )
        for name, shape in wanted.items():
            given = self.parts[name].shape
            same = (n in (None, m) for n, m in zip(shape, given, strict=False))
            if len(given) != len(shape) or not all(same):
                raise InputError(
                    f"{name} of {self.name} does not fit embeddings of {dim} dimensions",
                    "use the embeddings of the encoder that it belongs to",
                    field="parts",
                    code="other_parts",
                )

    def _fit_table(self, data: BaseData, rows: Array | None = None) -> None:
        super()._fit_table(data, rows)
        self._take_parts()

    def blank(self) -> Self:
        return type(self)(**self.config, parts=self.parts)

    def state(self) -> State:
        state = super().state()
        state["tensors"].update({PREFIX + k: v for k, v in self.parts.items()})
        return state

    def _restore(self, state: State) -> None:
        self.parts = part_of(state["tensors"], PREFIX)
        super()._restore(state)
        self._take_parts()


def network(
    make: Callable[[], Module], arrays: Mapping[str, Array], prefix: str, dtype: np.dtype[Any]
) -> Module:
    """A network, not to be trained, of the arrays whose names begin with the prefix."""
    with torch.device("meta"):
        module = make()
    tensors = {k: torch.tensor(arrays[prefix + k].astype(dtype)) for k in module.state_dict()}
    module.load_state_dict(tensors, assign=True)
    return module.eval().requires_grad_(False)
