"""Heads that need what was trained together with the encoder."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor
from typing_extensions import Self

from cala.core.mixing import FakePool
from cala.core.stored_rows import Features
from cala.errors import InputError
from cala.heads.base import State
from cala.heads.nearest_mean import NearestMean

PREFIX = "part."


class TrainedHead(NearestMean):
    """Template: class means, and logits that some trained `parts` make of them.

    The parts were trained with the encoder's own embeddings, so the metric is their cosine, and
    logits of old classes move when new ones arrive.

    parts : tensors by name, as `cala train --method NAME` writes them beside the encoder
    """

    old_columns_stay: ClassVar[bool] = False
    linear: ClassVar[bool] = False
    metrics: ClassVar[tuple[str, ...]] = ("cosine",)
    needs_parts: ClassVar[bool] = True

    def __init__(
        self,
        *,
        metric: str = "cosine",
        shrinkage: float | str = "auto",
        scale: float | str = "auto",
        parts: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__(metric=metric, shrinkage=shrinkage, scale=scale)
        self.parts = dict(parts or {})

    @classmethod
    @abstractmethod
    def part_shapes(cls, dim: int) -> dict[str, tuple[int | None, ...]]:
        """Names and shapes of the parts for embeddings of d dimensions; None is any number."""

    @abstractmethod
    def _take_parts(self) -> None:
        """Make what inference works with from `parts`; names and shapes are right already."""

    def fit_base(
        self,
        features: Features,
        labels: Tensor,
        *,
        fakes: FakePool | None = None,
        holdout: Tensor | None = None,
    ) -> Self:
        self.check_parts(features.shape[-1])
        return super().fit_base(features, labels, fakes=fakes, holdout=holdout)

    def check_parts(self, dim: int) -> None:
        """Raise unless the parts fit embeddings of so many dimensions."""
        wanted = self.part_shapes(dim)
        if not wanted.keys() <= self.parts.keys():
            raise InputError(
                f"{self.name} needs what is trained together with its encoder: make one with `cala "
                f"train DATA -o DIR --method {self.name}` and give it as --encoder {self.name}=DIR"
            )
        for name, shape in wanted.items():
            given = self.parts[name].shape
            fits = len(given) == len(shape) and all(
                n in (None, m) for n, m in zip(shape, given, strict=True)
            )
            if not fits:
                raise InputError(
                    f"{self.name} has {name} for other embeddings than these, of {dim} dimensions: "
                    "it belongs to another encoder"
                )

    def _fit_table(self, features: Features, columns: Tensor, rows: Tensor | None = None) -> None:
        super()._fit_table(features, columns, rows)
        self._take_parts()

    def blank(self) -> Self:
        return type(self)(**self.config(), parts=self.parts)

    def state(self) -> State:
        state = super().state()
        state["tensors"].update({PREFIX + k: v for k, v in self.parts.items()})
        return state

    def _restore(self, state: State) -> None:
        found = {k: v for k, v in state["tensors"].items() if k.startswith(PREFIX)}
        self.parts = {k.removeprefix(PREFIX): v for k, v in found.items()}
        super()._restore(state)
        self._take_parts()
