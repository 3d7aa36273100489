"""The Head contract: a classifier over embeddings that only grows."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, TypedDict

import numpy as np
from typing_extensions import Self

from cala.core.cala import PrototypeTable
from cala.core.calibration import Temperature
from cala.core.metric import METRICS
from cala.core.rows import Array
from cala.errors import InputError, StateError
from cala.heads.base_data import BaseData, Scorer
from cala.heads.checks import check_features, check_labels


class State(TypedDict):
    """Everything that a head has learned; `config` and `meta` hold JSON values."""

    name: str
    config: dict[str, Any]
    meta: dict[str, Any]
    tensors: dict[str, Array]


class Traits(NamedTuple):
    """What the bench and the model need to know to plan; does not change how a head computes.

    metrics : metrics that the head can work in
    old_columns_stay : learning a class leaves the logits of all others as they were
    takes_encoder_scale : its logits are s·cos as in base training, so the encoder's own s fits
    mixed_images_are_new : its encoder was not trained on images mixed from two classes
    needs_parts : it needs arrays that were trained together with the encoder, as `parts`
    changes_encoder : it is the base branch of a system whose sessions train the encoder
    streams : base rows may be on disk; the head reads them in parts, and some of them twice
    """

    metrics: tuple[str, ...] = tuple(METRICS)
    old_columns_stay: bool = True
    takes_encoder_scale: bool = False
    mixed_images_are_new: bool = True
    needs_parts: bool = False
    changes_encoder: bool = False
    streams: bool = False


class Head(ABC):
    """A classifier over embeddings that learns new classes without forgetting old ones.

    Labels are integers. Base classes take the first columns in sorted order; later classes are
    appended as they arrive, sorted within one `add`; a class never moves to another column.
    A call that fails leaves the head as it was. Arrays are replaced, never written to, so that
    `fork` can share them. While one thread changes a head, other threads must read from a fork.

    A head works on rows (n, e) that `embed` makes from embeddings (n, d). The first d numbers are
    the unit vector in its metric; a head may append numbers of its own, computed once per row.

    Attributes
    ----------
    classes : tuple of int
        Labels in column order.
    n_base : int
        How many of the first columns are base classes.
    dim, dtype : int, dtype
        Size and type of the embeddings.
    table : PrototypeTable
        Sums and counts of unit vectors per class, in the head's metric.
    adapted : bool
        Whether an adapter shifts its novel columns.

    Examples
    --------
    >>> from cala.heads import BaseData, make_head
    >>> head = make_head("nearest-mean").fit_base(BaseData(np.eye(4), np.array([0, 0, 1, 1])))
    >>> head.add(np.ones((1, 4)), np.array([7])).classes
    (0, 1, 7)
    """

    name: ClassVar[str]
    traits: ClassVar[Traits] = Traits()
    classes: tuple[int, ...]
    n_base: int
    dim: int
    dtype: np.dtype[Any]
    table: PrototypeTable
    adapted: ClassVar[bool] = False

    # What every head must implement.

    @abstractmethod
    def fit_base(self, data: BaseData) -> Self:
        """Learn the base classes."""

    @abstractmethod
    def embed(self, features: Array) -> Array:
        """Convert embeddings to the rows that the head works on: (n, d) -> (n, e) with e ≥ d."""

    @abstractmethod
    def add_unit(self, unit: Array, labels: Array) -> Self:
        """Learn embedded rows (n, e) of new classes; shots of a known class are folded into it."""

    @abstractmethod
    def unit_logits(self, unit: Array, members: Array | None = None) -> Array:
        """Logits of embedded rows (n, e), columns in order of arrival: a new array (n, C).

        members : (n,) columns; row i was used to make class `members[i]` and is scored as if it had
            not been (leave-one-out); -1 for a row that was used for no class
        """

    @abstractmethod
    def prototypes_at(self, columns: Array) -> Array:
        """Prototypes of some columns (m,), in the head's metric: (m, d)."""

    @abstractmethod
    def forget(self, label: int) -> Self:
        """Remove a class; the columns after it move up by one."""

    @abstractmethod
    def blank(self) -> Self:
        """An unfitted head with the same configuration."""

    @abstractmethod
    def state(self) -> State:
        """Everything learned."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: State) -> Self:
        """The head that `state` came from."""

    # What the base class provides.

    def add(self, features: Array, labels: Array) -> Self:
        """Learn new classes from embeddings (n, d) with integer labels (n,)."""
        features = self._checked("add", features)
        return self.add_unit(self.embed(features), check_labels(labels, len(features)))

    def remove(self, features: Array, label: int) -> Self:
        """Take embeddings (n, d) that a class was made of out of its mean; some must remain."""
        detail = f"{self.host.name} cannot take single images out of a class"
        raise InputError(detail, "forget the class and add it again", code="not_removable")

    def logits(self, features: Array) -> Array:
        """Logits over the seen classes in order of arrival: (n, d) -> (n, C)."""
        return self.unit_logits(self.embed(self._checked("logits", features)))

    def _checked(self, call: str, features: Array) -> Array:
        self._check_fitted(call)
        return check_features(features, dim=self.dim, dtype=self.dtype)

    def _check_fitted(self, call: str) -> None:
        if not self.classes:
            detail = f"{call} was called before fit_base"
            raise StateError(detail, "fit the base classes first", code="not_fitted")

    @property
    def prototypes(self) -> Array:
        """(C, d) in the head's metric, used to measure similarity to base."""
        return self.prototypes_at(np.arange(len(self.classes)))

    def fork(self) -> Self:
        """A cheap copy that can learn more without touching this one."""
        return copy.copy(self)

    def alike(self) -> Self:
        """An unfitted head that keeps the settings this one has found for itself."""
        return self.blank()

    def _become(self, other: Self) -> Self:
        """Replace this head's content with another's in one step: the last step of every change."""
        self.__dict__ = other.__dict__
        return self

    @property
    def room(self) -> int | None:
        """How many more classes it can learn; None if there is no limit."""
        return None

    def scorers(self, data: BaseData) -> list[Scorer]:
        """Heads like this one that score base rows without bias; by default the head itself.

        data : the data that this head was fitted to
        """
        return [Scorer(self, data.rows, leave_out=True)]

    # For heads with an adapter; a head without one adds nothing to its logits.

    @property
    def host(self) -> Head:
        """The head without its adapter."""
        return self

    @property
    def beta(self) -> Array:
        """Balance factors (C,); zero for base classes."""
        return np.zeros(len(self.classes), self.dtype)

    @property
    def shift(self) -> Array:
        """What is added to each column: (C,)."""
        return np.zeros(len(self.classes), self.dtype)

    @property
    def temperature(self) -> Temperature:
        """The temperature of `probabilities`; 1 unless held-out classes suggested another."""
        return Temperature()

    def probabilities(self, logits: Array) -> Array:
        """Turn this head's logits (n, C) into probabilities (n, C), in place."""
        return self.temperature.probabilities(logits, self.n_base)

    # A table of weights, for heads whose logits are linear in the unit embedding.

    def linear_form(self) -> tuple[Array, Array]:
        """Weights (C, d) and bias (C,) with unit_logits(u) = u @ weights.T + bias."""
        detail = f"the logits of {self.name} are not linear in the embedding"
        raise InputError(detail, "choose another method (`cala methods`)", code="not_linear")

    def new_row(self, unit: Array) -> tuple[Array, Array]:
        """What `add_unit` of shots (K, d) of one new class would append to `linear_form`.

        Returns weights (1, d) and bias (1,).
        """
        detail = f"{self.name} has no linear form that a new class could be added to"
        raise InputError(detail, "choose another method (`cala methods`)", code="not_linear")
