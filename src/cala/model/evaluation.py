"""How well a model does on labelled photos: known and new classes, confusions, unknowns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.metrics import harmonic
from cala.model.knowledge import Knowledge
from cala.model.rejection import Rejections, judge_rejection

MISTAKES = 10


@dataclass(frozen=True)
class ClassResult:
    """One class: how many of its photos were recognised."""

    name: str
    kind: str
    photos: int
    right: int


@dataclass(frozen=True)
class Mistake:
    """How often photos of one class were taken for another."""

    true: str
    taken_for: str
    photos: int


@dataclass(frozen=True)
class Evaluation:
    """Accuracies without rejection, and what rejection does beside them.

    known, new : accuracy on photos of classes of `fit` and of `add`; NaN without such photos
    hm : harmonic mean of the two
    answered : accuracy where "unknown" counts as wrong, as `predict` answers
    matrix : (T, C) photos of the T classes that were tested, by predicted class
    learned_from : photos that the model has learned from, whose results are too good
    """

    classes: tuple[ClassResult, ...]
    accuracy: float
    known: float
    new: float
    hm: float
    answered: float
    names: tuple[str, ...]
    matrix: NDArray[np.int64]
    rejections: Rejections
    learned_from: int

    @property
    def photos(self) -> int:
        return sum(c.photos for c in self.classes)

    def counted(self, kind: str) -> int:
        return sum(c.photos for c in self.classes if c.kind == kind)

    def mistakes(self, most: int = MISTAKES) -> list[Mistake]:
        """What is mistaken for what, most frequent first."""
        wrong = self.matrix.copy()
        for row, result in enumerate(self.classes):
            wrong[row, self.names.index(result.name)] = 0
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        found = []
        for row, column in zip(*np.unravel_index(order, wrong.shape), strict=True):
            if wrong[row, column]:
                true = self.classes[row].name
                found.append(Mistake(true, self.names[column], int(wrong[row, column])))
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "photos": self.photos,
            "accuracy": _number(self.accuracy),
            "known": {"photos": self.counted("known"), "accuracy": _number(self.known)},
            "new": {"photos": self.counted("new"), "accuracy": _number(self.new)},
            "hm": _number(self.hm),
            "answered": _number(self.answered),
            "unknown": self.rejections.to_json(),
            "learned_from": self.learned_from,
            "classes": [vars(result) for result in self.classes],
            "mistakes": [vars(mistake) for mistake in self.mistakes(len(self.names) ** 2)],
            "confusion": {
                "rows": [result.name for result in self.classes],
                "columns": list(self.names),
                "photos": self.matrix.tolist(),
            },
        }


def evaluate(
    knowledge: Knowledge,
    features: NDArray[np.float32],
    labels: Sequence[str],
    *,
    reject: float | None = None,
    learned_from: int = 0,
) -> Evaluation:
    """Judge a model on embeddings (n, d) of photos whose classes are `labels` (n,)."""
    names = knowledge.names
    column = {name: place for place, name in enumerate(names)}
    true = np.array([column.get(label, -1) for label in labels])
    predicted = _columns(knowledge, features)
    known, new = (true >= 0) & (true < knowledge.n_known), true >= knowledge.n_known
    right = predicted == true
    tested = np.unique(true[true >= 0])
    matrix = np.zeros((len(tested), len(names)), dtype=np.int64)
    inside = true >= 0
    np.add.at(matrix, (np.searchsorted(tested, true[inside]), predicted[inside]), 1)
    rate = knowledge.reject if reject is None else reject
    fits = _familiarity(knowledge, features)
    on_known, on_new = _share(right[known]), _share(right[new])
    return Evaluation(
        classes=tuple(
            ClassResult(
                names[c],
                knowledge.kind_at(c),
                int((true == c).sum()),
                int(right[true == c].sum()),
            )
            for c in tested.tolist()
        ),
        accuracy=_share(right[inside]),
        known=on_known,
        new=on_new,
        hm=harmonic(on_known, on_new),
        answered=_share((right & ~(fits < rate))[inside]),
        names=tuple(names),
        matrix=matrix,
        rejections=judge_rejection(fits, known, new, rate),
        learned_from=learned_from,
    )


def _columns(knowledge: Knowledge, features: NDArray[np.float32]) -> NDArray[np.int64]:
    column = {name: place for place, name in enumerate(knowledge.names)}
    answers = knowledge.classifier.predict(features)
    return np.array([column[str(name)] for name in answers], dtype=np.int64)


def _familiarity(knowledge: Knowledge, features: NDArray[np.float32]) -> NDArray[np.float64]:
    if not knowledge.classifier.rejection_.is_on:
        return np.full(len(features), np.nan)
    return knowledge.classifier.familiarity(features)


def _share(right: NDArray[np.bool_]) -> float:
    return float(right.mean()) if len(right) else float("nan")


def _number(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 6)
