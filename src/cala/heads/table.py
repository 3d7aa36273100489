"""What heads over a prototype table share: checks, the metric, sums and counts."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from cala.core.folds import FOLDS, draw_folds, judges_itself_fairly
from cala.core.metric import METRICS, CosineMetric, Metric, fit_metric, restore_metric
from cala.core.mixing import FakePool
from cala.core.prototypes import CHUNK, PrototypeTable, chunks, parts_of
from cala.core.stored_rows import Features
from cala.errors import InputError, StateError
from cala.heads.base import Head, Judge, State
from cala.heads.checks import (
    check_fakes,
    check_features,
    check_holdout,
    check_labels,
    check_streams,
    is_auto,
    is_number,
)
from cala.registry import check_choice


class TableHead(Head):
    """Template for heads: subclasses work on unit vectors and fill in a few hooks.

    `unit_logits` is theirs to write; `_fit_base`, `_add` and `_forget` where they keep more than
    the table. This class checks inputs, applies the metric and keeps the table.
    """

    def __init__(self, *, metric: str = "cosine", shrinkage: float | str = "auto") -> None:
        check_choice("metric", metric, METRICS)
        if metric not in self.metrics:
            raise InputError(
                f"{self.name} works in the {' or '.join(self.metrics)} metric, not in {metric}: "
                "that is what it was trained with"
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
        self.table = PrototypeTable.empty(0)
        self.dtype = torch.float32

    def fit_base(
        self,
        features: Features,
        labels: Tensor,
        *,
        fakes: FakePool | None = None,
        holdout: Tensor | None = None,
    ) -> Self:
        check_streams(self, features)
        features = check_features(features)
        labels = check_labels(labels, features)
        fakes = check_fakes(fakes, features.shape[1])
        holdout = check_holdout(holdout, len(features))
        classes, columns = labels.unique(return_inverse=True)
        if len(classes) < 2:
            raise InputError(
                f"fit_base got one class ({classes[0].item()}): give at least two base classes"
            )
        fitted = self.blank()
        fitted.dtype = features.dtype
        fitted.classes = tuple(classes.tolist())
        fitted.n_base = len(classes)
        fitted.dim = features.shape[1]
        fitted._fit_table(features, columns)
        fitted._fit_base(features, columns, fakes, holdout)
        return self._become(fitted)

    def _fit_table(self, features: Features, columns: Tensor, rows: Tensor | None = None) -> None:
        """Learn metric and sums from all rows, or from `rows` (m,) alone."""
        self.metric = fit_metric(self.metric_name, features, columns, self.shrinkage, rows)
        units = ((self.metric(part), own) for part, own in parts_of(features, columns, rows))
        self.table = PrototypeTable.of(units, self.n_base, self.dim)

    def judges(
        self, features: Features, columns: Tensor, generator: torch.Generator
    ) -> list[Judge]:
        """Itself where its metric hardly knows a single row, and where that is cheap; else
        refitted without each fold."""
        unbiased = self.metric_name == "cosine" or judges_itself_fairly(
            self.dim, len(columns), self.n_base
        )
        if unbiased and self.leaves_out_cheaply:
            return super().judges(features, columns, generator)
        folds = draw_folds(columns, generator).to(columns.device)
        judges = []
        for fold in range(FOLDS):
            rest, rows = (folds != fold).nonzero()[:, 0], (folds == fold).cpu().nonzero()[:, 0]
            head = self.fork()
            head._refit(features, columns, rest)
            judges.append(Judge(head, rows, leave_out=False))
        fair = [judge for judge in judges if len(judge.rows)]
        return fair or super().judges(features, columns, generator)

    def _refit(self, features: Features, columns: Tensor, rows: Tensor) -> None:
        """Learn metric and prototypes from some base rows (m,); keep everything else."""
        self._fit_table(features, columns, rows)

    def add(self, features: Tensor, labels: Tensor) -> Self:
        self._check_fitted("add")
        features = check_features(features, dim=self.dim, dtype=self.dtype)
        labels = check_labels(labels, features)
        return self.add_unit(self.embed(features), labels)

    def add_unit(self, unit: Tensor, labels: Tensor) -> Self:
        known = dict(zip(self.classes, range(len(self.classes)), strict=True))
        for label in labels.unique().tolist():
            known.setdefault(label, len(known))
        columns = torch.tensor([known[x] for x in labels.tolist()], device=unit.device)
        grown = self.fork()
        grown.classes = tuple(known)
        grown.table = self.table.extended(unit[:, : self.dim], columns)
        grown._add(unit, columns)
        return self._become(grown)

    def logits(self, features: Tensor) -> Tensor:
        self._check_fitted("logits")
        features = check_features(features, dim=self.dim, dtype=self.dtype)
        return self.unit_logits(self.embed(features))

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

    def prototypes_at(self, columns: Tensor) -> Tensor:
        means = self.table.sums[columns] / self.table.counts[columns, None]
        return means.to(self.dtype)

    def embed(self, features: Tensor) -> Tensor:
        if features.numel() <= CHUNK:  # `len` would end in a number when traced
            return self.metric(features)
        unit = torch.empty_like(features)
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
                "dtype": str(self.dtype).removeprefix("torch."),
            },
            "tensors": {
                "sums": self.table.sums,
                "counts": self.table.counts,
                **{f"metric.{k}": v for k, v in self.metric.tensors().items()},
            },
        }

    @classmethod
    def from_state(cls, state: State) -> Self:
        head = cls(**state["config"])
        meta, tensors = state["meta"], state["tensors"]
        head.classes = tuple(meta["classes"])
        head.n_base, head.dim = meta["n_base"], meta["dim"]
        head.dtype = getattr(torch, meta["dtype"])
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

    def _fit_base(
        self,
        features: Features,
        columns: Tensor,
        fakes: FakePool | None,
        holdout: Tensor | None,
    ) -> None:
        """Learn from base rows; the table is filled already."""

    def _add(self, unit: Tensor, columns: Tensor) -> None:
        """Learn from shots; the table has grown already."""

    def _forget(self, column: int) -> None:
        """Drop what belongs to one column; the table has shrunk already."""

    def _restore(self, state: State) -> None:
        """Take from a state what the subclass put there; table and metric are restored already."""

    def _check_fitted(self, call: str) -> None:
        if not self.classes:
            raise StateError(f"{call} before fit_base: fit the base classes first")


def _some(names: tuple[int, ...], most: int = 10) -> str:
    shown = ", ".join(str(n) for n in names[:most])
    return shown + (f", … ({len(names)} in all)" if len(names) > most else "")
