"""What a base session learns from, and which heads can score its rows without bias."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator

from cala.core.fakes import FakePool, draw_pairs, mix_features, pool_shape
from cala.core.rows import Array, ClassRows, Features
from cala.errors import InputError
from cala.heads.checks import check_fakes, check_features, check_holdout, check_labels

if TYPE_CHECKING:
    from cala.heads.base import Head


@dataclass(frozen=True)
class Scorer:
    """A head and the base rows that it can score without bias.

    leave_out : the rows are part of the head's prototypes and must be left out of their own
    """

    head: Any  # Head
    rows: ClassRows
    leave_out: bool


class BaseData:
    """What `fit_base` learns from.

    features : (n, d) embeddings of base images, in memory or on disk
    labels : (n,) integers; columns are the base classes in sorted order
    fakes : fake-class embeddings, for heads that train on pseudo sessions
    holdout : (n,) bool, rows that the encoder was not trained on; they serve as base queries

    An encoder's own training images sit closer to their prototypes than new ones, so base looks
    safer than it is where they are queries. A row can be left out of its own prototype by
    arithmetic, but not out of a metric that was estimated from it: where rows are few for the
    dimension, heads are refitted without the rows they judge (`Head.scorers`), once per fit.
    """

    def __init__(
        self, features: Features, labels: Any, *, fakes: FakePool | None = None, holdout: Any = None
    ) -> None:
        self.features = check_features(features)
        labels = check_labels(labels, len(self.features))
        self.fakes = check_fakes(fakes, self.dim)
        self.holdout = check_holdout(holdout, len(self))
        classes, columns = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            detail = f"fit_base got one class ({classes[0]})"
            raise InputError(detail, "give at least two base classes", code="one_class")
        self.classes = tuple(classes.tolist())
        self.columns: Array = columns
        self._scorers: tuple[Any, list[Scorer]] = (None, [])

    def __len__(self) -> int:
        return len(self.features)

    @property
    def dim(self) -> int:
        return int(self.features.shape[1])

    @property
    def n_base(self) -> int:
        return len(self.classes)

    @cached_property
    def rows(self) -> ClassRows:
        """All rows by class."""
        return ClassRows.of(self.features, self.columns, self.n_base)

    @cached_property
    def queries(self) -> Array:
        """(n,) bool: a class's held-out rows where it has any, else all, if it has several.

        A class's only row cannot be left out: nothing of the class would remain. A class without
        held-out rows takes part all the same: where few classes stand for all of base, base seems
        to have nothing to lose, and β has no bound.
        """
        several = self.rows.counts[self.columns] > 1
        if self.holdout is None:
            return several
        held = several & self.holdout
        return held | (several & ~self._covered(held)[self.columns])

    def coverage(self) -> tuple[int, int]:
        """How many base classes have held-out rows to serve as queries, and how many could have."""
        several = self.rows.counts[self.columns] > 1
        held = several if self.holdout is None else several & self.holdout
        return int(self._covered(held).sum()), int(self._covered(several).sum())

    def _covered(self, rows: Array) -> Array:
        """(B,) bool: classes with one of the rows that the mask (n,) marks."""
        return np.bincount(self.columns[rows], minlength=self.n_base) > 0

    def scorers(self, head: Head) -> list[Scorer]:
        """`head.scorers` of the head that was fitted last, computed once."""
        # `Head._become` hands over the attributes, so their dict identifies a fitted head.
        if self._scorers[0] is not head.__dict__:
            self._scorers = (head.__dict__, head.scorers(self))
        return self._scorers[1]

    def fake_pool(self, pairs: int, images: int, rng: Generator, keep_spread: bool) -> FakePool:
        """The fake classes that were given, or about pairs × images mixed from the embeddings."""
        if self.fakes is not None:
            return self.fakes
        wanted, each = pool_shape(self.rows.counts, pairs, images)
        drawn = draw_pairs(self.n_base, wanted, rng)
        return mix_features(self.features, self.rows, drawn, each, rng, keep_spread)
