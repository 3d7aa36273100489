"""What heads over a prototype table share: the metric, sums and counts, growing and forgetting."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, TypedDict

import numpy as np
from typing_extensions import Self, Unpack

from cala.core.cala import PrototypeTable
from cala.core.calibration import fit_scale
from cala.core.metric import METRICS, CosineMetric, Metric, fit_metric, restore_metric
from cala.core.rows import CHUNK, Array, StoredRows, chunks, parts_of
from cala.errors import InputError
from cala.heads.base import Head, State, Traits
from cala.heads.base_data import BaseData, Scorer
from cala.heads.checks import is_auto, number_or_auto
from cala.registry import check_choice

FOLDS = 5
TRUSTED_RATIO = 0.05  # of dimensions to degrees of freedom; CIFAR-100 with 64 dimensions: 0.002
SCALE_ROWS_PER_CLASS = 50
SCALE_SCORES = 2**24  # rows × classes at the most: a scale needs no more, and memory is limited


class TableHead(Head):
    """Template for heads: subclasses work on unit vectors and fill in a few hooks.

    `unit_logits` is theirs to write; `_fit_base`, `_add`, `_forget` and `_restore` where they keep
    more than the table.

    config : the constructor's arguments, as JSON values
    """

    #: With fewer base classes it is the same as a simpler head.
    fewest_base: ClassVar[int] = 2
    #: Attributes that are part of the state: arrays, and JSON values. "_x" is kept as "x".
    saved_arrays: ClassVar[tuple[str, ...]] = ()
    saved_values: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *, metric: str = "cosine", shrinkage: float | str = "auto") -> None:
        check_choice("metric", metric, METRICS)
        if metric not in self.traits.metrics:
            raise InputError(
                f"{self.name} does not work in the {metric} metric",
                f"use {' or '.join(self.traits.metrics)}, which it was trained with",
                field="metric",
            )
        self.config: dict[str, Any] = {
            "metric": metric,
            "shrinkage": number_or_auto("shrinkage", shrinkage),
        }
        self.metric_name = metric
        self.metric: Metric = CosineMetric()
        self.classes: tuple[int, ...] = ()
        self.n_base = 0
        self.dim = 0
        self.table = PrototypeTable.empty(0, 0)
        self.dtype = np.dtype(np.float32)

    def fit_base(self, data: BaseData) -> Self:
        if isinstance(data.features, StoredRows) and not self.traits.streams:
            raise InputError(
                f"{self.name} needs all training embeddings in memory",
                "give it an embeddings file (.npz, .safetensors), or choose a method that streams, "
                "such as cala or cala-plus",
                code="not_streaming",
            )
        fitted = self.blank()
        fitted.dtype = np.dtype(data.features.dtype)
        fitted.classes, fitted.n_base, fitted.dim = data.classes, data.n_base, data.dim
        fitted._fit_table(data)
        fitted._fit_base(data)
        return self._become(fitted)

    def _fit_table(self, data: BaseData, rows: Array | None = None) -> None:
        """Learn metric and sums from all rows, or from `rows` (m,) alone."""
        features, columns, shrinkage = data.features, data.columns, self.config["shrinkage"]
        self.metric = fit_metric(self.metric_name, features, columns, shrinkage, rows)
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
            raise InputError(f"class {label!r} is not known", code="unknown_class")
        column = self.classes.index(label)
        if len(self.classes) <= 2 or (column < self.n_base and self.n_base == 1):
            fix = "keep two classes, one of them base"
            raise InputError(f"cannot forget {label!r}", fix, code="too_few_classes")
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
            "config": dict(self.config),
            "meta": {
                "classes": list(self.classes),
                "n_base": self.n_base,
                "dim": self.dim,
                "dtype": self.dtype.name,
                **{name.removeprefix("_"): getattr(self, name) for name in self.saved_values},
            },
            "tensors": {
                "sums": self.table.sums,
                "counts": self.table.counts,
                **{f"metric.{k}": v for k, v in self.metric.arrays().items()},
                **{name.removeprefix("_"): getattr(self, name) for name in self.saved_arrays},
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
        head.metric = restore_metric(head.metric_name, part_of(tensors, "metric."))
        for names, kept in ((cls.saved_values, meta), (cls.saved_arrays, tensors)):
            for name in names:
                setattr(head, name, kept[name.removeprefix("_")])
        head._restore(state)
        return head

    def blank(self) -> Self:
        return type(self)(**self.config)

    def _fit_base(self, data: BaseData) -> None:
        """Learn from base rows; the table is filled already."""

    def _add(self, unit: Array, columns: Array) -> None:
        """Learn from shots; the table has grown already."""

    def _forget(self, column: int) -> None:
        """Drop what belongs to one column; the table has shrunk already."""

    def _restore(self, state: State) -> None:
        """Rebuild what is not stored, from the restored table, metric and saved attributes."""


class TableOptions(TypedDict, total=False):
    """Options of every head."""

    metric: str
    shrinkage: float | str


class ScaledOptions(TableOptions, total=False):
    """Options of every head with a scale."""

    scale: float | str


class ScaledHead(TableHead):
    """Template: logits are scores (`_scores`) times a scale.

    scale : the scale s of base training, or "auto" for the one that minimises leave-one-out
        cross-entropy on base rows
    """

    traits: ClassVar[Traits] = Traits(takes_encoder_scale=True, streams=True)
    saved_values: ClassVar[tuple[str, ...]] = ("scale",)

    def __init__(self, *, scale: float | str = "auto", **common: Unpack[TableOptions]) -> None:
        super().__init__(**common)
        self.config["scale"] = number_or_auto("scale", scale, above=True)
        self.scale = 1.0

    @abstractmethod
    def _scores(self, unit: Array, members: Array | None) -> Array:
        """Logits (n, C) before they are scaled, in an array that may be written to."""

    def unit_logits(self, unit: Array, members: Array | None = None) -> Array:
        return self._scaled(self._scores(unit, members))

    def _scaled(self, scores: Array) -> Array:
        """Logits; scores (n, C) are a temporary that may be written to."""
        scores *= self.scale
        return scores

    def _fit_base(self, data: BaseData) -> None:
        if not self._fits_scale:
            self._take_scale(self.config["scale"])
            return
        self._fit_scale(*self._unbiased_scores(data))
        for scorer in data.scorers(self):
            scorer.head._scale_like(self)

    @property
    def _fits_scale(self) -> bool:
        """Whether what turns scores into logits is learned from base rows."""
        return is_auto(self.config["scale"])

    def _take_scale(self, scale: float) -> None:
        """Use the scale that was given."""
        self.scale = scale

    def _fit_scale(self, scores: Array, own: Array) -> None:
        """Choose what turns scores (m, B) of rows with columns (m,) into logits."""
        self.scale = fit_scale(scores, own)

    def _scale_like(self, other: Any) -> None:
        """Turn scores into logits as another head of this kind does."""
        self.scale = other.scale

    def _unbiased_scores(self, data: BaseData) -> tuple[Array, Array]:
        """Scores (m, B) of up to 50 base rows per class, as if not learned from, and columns."""
        rng = np.random.default_rng(0)
        scorers = data.scorers(self)
        most = max(SCALE_SCORES // (self.n_base * len(scorers)), 1)
        parts, owners = [np.zeros((0, self.n_base), self.dtype)], [np.zeros(0, np.int64)]
        for scorer in scorers:
            rows = scorer.rows.where(data.queries).draw(SCALE_ROWS_PER_CLASS, rng)
            rows = rows.thinned(most, rng)
            head, own = scorer.head, rows.columns
            for part in chunks(len(rows), max(self.dim, self.n_base)):
                unit = head.embed(data.features[rows.order[part]])
                parts.append(head._scores(unit, own[part] if scorer.leave_out else None))
            owners.append(own)
        return np.concatenate(parts), np.concatenate(owners)

    def alike(self) -> Self:
        other = self.blank()
        other.config["scale"] = self.scale
        return other


def part_of(tensors: dict[str, Array], prefix: str) -> dict[str, Array]:
    """Those whose names begin with the prefix, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
