"""What heads over a prototype table share: the metric, sums and counts, growing and forgetting."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from typing_extensions import Self

from cala.core.cala import PrototypeTable
from cala.core.metric import METRICS, CosineMetric, Metric, fit_metric, restore_metric
from cala.core.rows import CHUNK, Array, StoredRows, chunks, parts_of
from cala.errors import InputError
from cala.heads.base import Head, State
from cala.heads.base_data import BaseData, Scorer
from cala.heads.checks import is_auto, is_number
from cala.registry import check_choice

FOLDS = 5
TRUSTED_RATIO = 0.05  # of dimensions to degrees of freedom; CIFAR-100 with 64 dimensions: 0.002


class TableHead(Head):
    """Template for heads: subclasses work on unit vectors and fill in a few hooks.

    `unit_logits` is theirs to write; `_fit_base`, `_add`, `_forget` and `_restore` where they keep
    more than the table.
    """

    #: With fewer base classes it is no other than a simpler head.
    fewest_base: ClassVar[int] = 2

    def __init__(self, *, metric: str = "cosine", shrinkage: float | str = "auto") -> None:
        check_choice("metric", metric, METRICS)
        if metric not in self.traits.metrics:
            raise InputError(
                f"{self.name} works in the {' or '.join(self.traits.metrics)} metric, not in "
                f"{metric}: that is what it was trained with"
            )
        number = is_number(shrinkage) and 0 <= float(shrinkage) < math.inf
        if not is_auto(shrinkage) and not number:
            raise InputError(f'shrinkage is {shrinkage!r}: give a number from 0 on, or "auto"')
        self.metric_name = metric
        self.shrinkage = shrinkage if is_auto(shrinkage) else float(shrinkage)
        self.metric: Metric = CosineMetric()
        self.classes: tuple[int, ...] = ()
        self.n_base = 0
        self.dim = 0
        self.table = PrototypeTable.empty(0, 0)
        self.dtype = np.dtype(np.float32)

    def fit_base(self, data: BaseData) -> Self:
        if isinstance(data.features, StoredRows) and not self.traits.streams:
            raise InputError(
                f"{self.name} needs all training embeddings in memory: give it an embeddings file "
                "(.npz, .safetensors), or choose a method that streams, such as cala or cala-plus"
            )
        fitted = self.blank()
        fitted.dtype = np.dtype(data.features.dtype)
        fitted.classes, fitted.n_base, fitted.dim = data.classes, data.n_base, data.dim
        fitted._fit_table(data)
        fitted._fit_base(data)
        return self._become(fitted)

    def _fit_table(self, data: BaseData, rows: Array | None = None) -> None:
        """Learn metric and sums from all rows, or from `rows` (m,) alone."""
        features, columns = data.features, data.columns
        self.metric = fit_metric(self.metric_name, features, columns, self.shrinkage, rows)
        units = ((self.metric(part), own) for part, own in parts_of(features, columns, rows))
        self.table = PrototypeTable.of(units, self.n_base, self.dim)

    def scorers(self, data: BaseData) -> list[Scorer]:
        """Itself where a row can be left out by arithmetic; else refitted without each fold."""
        if self._leaves_out_fairly(data):
            return super().scorers(data)
        every = np.ones(len(data), dtype=bool)
        found = []
        for fold in data.rows.folds(FOLDS, np.random.default_rng(0)):
            if not len(fold):
                continue
            rest = every.copy()
            rest[fold.order] = False
            head = self.fork()
            head._refit(data, np.flatnonzero(rest))
            found.append(Scorer(head, fold, leave_out=False))
        return found or super().scorers(data)

    def _leaves_out_fairly(self, data: BaseData) -> bool:
        """Whether a row can be left out of its class by arithmetic, without bias.

        Where rows are few for the dimension, whitening makes the very rows it was estimated from
        look far more separable than new ones: with 4 photos of 100 classes in 1,280 dimensions,
        leave-one-out accuracy is near 100 % and true accuracy near 57 %.
        """
        freedom = max(len(data) - data.n_base, 1)
        return self.metric_name == "cosine" or data.dim <= TRUSTED_RATIO * freedom

    def _refit(self, data: BaseData, rows: Array) -> None:
        """Learn metric and prototypes from some base rows (m,); keep everything else."""
        self._fit_table(data, rows)

    def add_unit(self, unit: Array, labels: Array) -> Self:
        known = dict(zip(self.classes, range(len(self.classes)), strict=True))
        for label in np.unique(labels).tolist():
            known.setdefault(label, len(known))
        columns = np.array([known[label] for label in labels.tolist()], dtype=np.int64)
        grown = self.fork()
        grown.classes = tuple(known)
        grown.table = self.table.extended(unit[:, : self.dim], columns)
        grown._add(unit, columns)
        return self._become(grown)

    def forget(self, label: int) -> Self:
        if label not in self.classes:
            raise InputError(f"class {label!r} is not known: known are {_some(self.classes)}")
        column = self.classes.index(label)
        if len(self.classes) <= 2 or (column < self.n_base and self.n_base == 1):
            raise InputError(f"cannot forget {label!r}: two classes, one of them base, must remain")
        smaller = self.fork()
        smaller.classes = self.classes[:column] + self.classes[column + 1 :]
        smaller.n_base = self.n_base - (column < self.n_base)
        smaller.table = self.table.without(column)
        smaller._forget(column)
        return self._become(smaller)

    def prototypes_at(self, columns: Array) -> Array:
        return self.table.at(columns).means.astype(self.dtype)

    def embed(self, features: Array) -> Array:
        if features.size <= CHUNK:
            return self.metric(features)
        unit = np.empty_like(features)
        for rows in chunks(*features.shape):
            unit[rows] = self.metric(features[rows])
        return unit

    def state(self) -> State:
        self._check_fitted("state")
        return {
            "name": self.name,
            "config": self.config(),
            "meta": {
                "classes": list(self.classes),
                "n_base": self.n_base,
                "dim": self.dim,
                "dtype": self.dtype.name,
            },
            "tensors": {
                "sums": self.table.sums,
                "counts": self.table.counts,
                **{f"metric.{k}": v for k, v in self.metric.arrays().items()},
            },
        }

    @classmethod
    def from_state(cls, state: State) -> Self:
        head = cls(**state["config"])
        meta, tensors = state["meta"], state["tensors"]
        head.classes = tuple(meta["classes"])
        head.n_base, head.dim = meta["n_base"], meta["dim"]
        head.dtype = np.dtype(meta["dtype"])
        head.table = PrototypeTable(tensors["sums"], tensors["counts"])
        prefix = "metric."
        parts = {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}
        head.metric = restore_metric(head.metric_name, parts)
        head._restore(state)
        return head

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as JSON values."""
        return {"metric": self.metric_name, "shrinkage": self.shrinkage}

    def blank(self) -> Self:
        return type(self)(**self.config())

    def _fit_base(self, data: BaseData) -> None:
        """Learn from base rows; the table is filled already."""

    def _add(self, unit: Array, columns: Array) -> None:
        """Learn from shots; the table has grown already."""

    def _forget(self, column: int) -> None:
        """Drop what belongs to one column; the table has shrunk already."""

    def _restore(self, state: State) -> None:
        """Take from a state what the subclass put there; table and metric are restored already."""


def _some(names: tuple[int, ...], most: int = 10) -> str:
    shown = ", ".join(str(n) for n in names[:most])
    return shown + (f", … ({len(names)} in all)" if len(names) > most else "")
