"""The Head contract: a classifier over embeddings that only ever grows."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from cala.core.metric import METRICS
from cala.core.mixing import FakePool
from cala.core.prototypes import PrototypeTable
from cala.core.stored_rows import Features
from cala.errors import InputError

State = dict[str, Any]


@dataclass(frozen=True)
class Judge:
    """A head and the base rows that it can score fairly.

    rows : (m,) indices of base rows
    leave_out : the rows are part of the head's prototypes and must be left out of their own
    """

    head: Head
    rows: Tensor
    leave_out: bool


class Head(ABC):
    """A growing classifier; everything else hangs on this contract.

    Labels are integers. Base classes take the first columns in sorted order; later classes are
    appended as they arrive, sorted within one `add`; a class never moves to another column.
    A call that fails leaves the head as it was. Tensors are replaced, never written to, so that
    `fork` can share them. Threads that read while another one changes a head read from a fork, as
    `CalaClassifier` does.

    classes : labels in column order
    n_base : how many of the first columns are base classes
    dim : dimension of the embeddings
    table : sums and counts of unit vectors per class, in the head's metric
    """

    name: ClassVar[str]
    #: Whether learning a class leaves the logits of all others as they were.
    old_columns_stay: ClassVar[bool] = True
    #: Whether its logits are s·cos as in base training, so that the encoder's own s fits them.
    takes_encoder_scale: ClassVar[bool] = False
    #: Whether its logits are linear in the unit embedding, so that `linear_form` exists.
    linear: ClassVar[bool] = False
    #: Whether a row can be left out of its own class at little cost.
    leaves_out_cheaply: ClassVar[bool] = True
    #: Whether images of two classes, mixed, are new to the encoder that it works with.
    mixed_images_are_new: ClassVar[bool] = True
    #: Metrics that it can work in.
    metrics: ClassVar[tuple[str, ...]] = tuple(METRICS)
    #: Whether it needs tensors that were trained together with the encoder, as `parts`.
    needs_parts: ClassVar[bool] = False
    #: Whether it is the base branch of a system whose sessions train the encoder on images.
    changes_encoder: ClassVar[bool] = False
    #: Whether base rows may lie on the disk: it takes them part by part, and some of them twice.
    streams: ClassVar[bool] = False
    #: Whether shots that come one by one teach what they teach together.
    folds_shots: ClassVar[bool] = True
    classes: tuple[int, ...]
    n_base: int
    dim: int
    table: PrototypeTable
    dtype: torch.dtype

    @abstractmethod
    def fit_base(
        self,
        features: Features,
        labels: Tensor,
        *,
        fakes: FakePool | None = None,
        holdout: Tensor | None = None,
    ) -> Self:
        """Learn the base classes.

        features : (n, d), in memory or, where the head `streams`, read as it is asked for
        labels : (n,) integers
        fakes : fake-class embeddings, for heads that train on pseudo sessions
        holdout : (n,) bool, rows that the encoder was not trained on; they serve as base queries
        """

    @abstractmethod
    def add(self, features: Tensor, labels: Tensor) -> Self:
        """Learn new classes; shots of a class already known are folded into it.

        features : (n, d); labels : (n,) integers
        """

    @abstractmethod
    def logits(self, features: Tensor) -> Tensor:
        """Logits over the seen classes in order of arrival: (n, d) -> (n, C).

        A new tensor, which the caller may write to.
        """

    @abstractmethod
    def forget(self, label: int) -> Self:
        """Remove a class; the columns after it move up by one."""

    @abstractmethod
    def prototypes_at(self, columns: Tensor) -> Tensor:
        """Prototypes of some columns, in the head's metric: (m,) -> (m, d)."""

    @property
    def prototypes(self) -> Tensor:
        """(C, d) in the head's metric: what similarity to base is measured with."""
        return self.prototypes_at(torch.arange(len(self.classes), device=self.table.counts.device))

    # What pseudo sessions need: embed the pool once, then fork, add and score many times.

    @abstractmethod
    def embed(self, features: Tensor) -> Tensor:
        """Rows as the head works on them: (n, d) -> (n, e) with e ≥ d.

        The first d numbers are the unit vector in the head's metric; what may follow is the
        head's own, computed once per row instead of in every pseudo session.
        """

    @abstractmethod
    def add_unit(self, unit: Tensor, labels: Tensor) -> Self:
        """`add` for rows (n, e) that `embed` gave."""

    @abstractmethod
    def unit_logits(self, unit: Tensor, members: Tensor | None = None) -> Tensor:
        """Logits of rows (n, e) that `embed` gave: a new tensor, which the caller may write to.

        members : (n,) columns; row i helped to make class `members[i]` and is to be judged as if
        it had not (leave-one-out); -1 for a row that helped to make none
        """

    # What a model needs to leave cala: a table that any matrix product can read.

    def linear_form(self) -> tuple[Tensor, Tensor]:
        """Weights (C, d) and bias (C,) with unit_logits(u) = u @ weights.T + bias."""
        raise InputError(
            f"the logits of {self.name} are not linear in the embedding: they cannot be written "
            "as a table of weights; choose another method (`cala methods` lists them)"
        )

    def linear_at(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        """`linear_form` of some columns (m,) alone: (m, d), (m,)."""
        weights, bias = self.linear_form()
        return weights[columns], bias[columns]

    def linear_bias(self) -> Tensor:
        """The bias (C,) of `linear_form`, without its weights."""
        return self.linear_form()[1]

    def new_prototype(self, unit: Tensor) -> Tensor:
        """The prototype (1, d) that shots (K, d) of one new class would get; traceable as well."""
        return PrototypeTable.of_one(unit).means.to(self.dtype)

    def new_row(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        """What `add_unit` of shots (K, d) of one new class would append to `linear_form`.

        Returns weights (1, d) and bias (1,). Nothing here may depend on the values or the number
        of shots but through tensors, so that it can be traced.
        """
        raise InputError(f"{self.name} has no linear form that a new class could be added to")

    @property
    def room(self) -> int | None:
        """How many more classes it can learn; None where nothing limits them."""
        return None

    def judges(
        self, features: Features, columns: Tensor, generator: torch.Generator
    ) -> list[Judge]:
        """Heads like this one that can score base rows fairly; by default itself.

        features, columns : (n, d), (n,) what this head was fitted to
        """
        return [Judge(self, torch.arange(len(columns)), leave_out=True)]

    def fork(self) -> Self:
        """A cheap copy that can learn more without touching this one."""
        return copy.copy(self)

    @abstractmethod
    def blank(self) -> Self:
        """An unfitted head with the same configuration."""

    @abstractmethod
    def state(self) -> State:
        """Everything learned: {"name", "config", "meta" (JSON values), "tensors"}."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: State) -> Self:
        """The head that `state` came from."""

    def _become(self, other: Self) -> Self:
        """Take over another head's content at once: the last step of every change."""
        self.__dict__ = other.__dict__
        return self
