"""How well a model does on labelled photos: known and new classes, confusions, unknowns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.metrics import Answers, auroc, average, fpr_at_tpr, harmonic
from cala.model.estimate import Share
from cala.model.prediction import predict
from cala.model.version import UNKNOWN, Features, ModelVersion

MISTAKES = 10

Mask = NDArray[np.bool_]


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
class PhotoResult:
    """One photo: its class and what the model answers.

    stranger : whether the model does not know its class; best : the best class, fitting or not
    answer : that class, or "unknown"
    """

    image: str
    label: str
    stranger: bool
    answer: str
    best: str
    probability: float

    @property
    def right(self) -> bool:
        return self.answer == (UNKNOWN if self.stranger else self.label)


@dataclass(frozen=True)
class Rejections:
    """Fractions of photos called unknown at a rate, and how well familiarity tells them apart.

    known, new : of photos of known and of new classes, where it is wrong
    strange : of photos of classes that the model does not know, where it is right
    auroc_known, auroc_new, auroc : chance that a photo of the model's classes looks more familiar
        than a strange one; NaN without strange photos
    fpr95 : fraction of strange photos that pass where 95 % of the others do
    """

    rate: float
    known: float
    new: float
    strange: float
    strange_photos: int
    auroc: float
    auroc_known: float
    auroc_new: float
    fpr95: float

    def to_json(self) -> dict[str, Any]:
        return {name: None if value != value else value for name, value in vars(self).items()}


@dataclass(frozen=True)
class Evaluation:
    """Accuracies without rejection, and what rejection does beside them.

    Parameters
    ----------
    classes : tuple of ClassResult
        The classes that were tested.
    accuracy : float
        Fraction of photos of the model's classes that were recognised.
    known, new : float
        Accuracy on photos of classes of `fit` and of `add`; NaN without such photos.
    hm : float
        Harmonic mean of the two.
    answered : float
        Accuracy where "unknown" counts as wrong, as `predict` answers.
    names : tuple of str
        All classes of the model.
    matrix : (T, C) array of int
        Photos of the T classes that were tested, by predicted class.
    rejections : Rejections
        What calling photos unknown costs and brings.
    learned_from : int
        How many of the photos the model has learned from; results on these are too good.
    results : tuple of PhotoResult
        What became of each photo.

    Examples
    --------
    >>> import cala
    >>> found = cala.load("birds").evaluate(photos, labels)  # doctest: +SKIP
    >>> found.accuracy, found.mistakes(3)  # doctest: +SKIP
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
    results: tuple[PhotoResult, ...] = ()

    @property
    def photos(self) -> int:
        """Photos of the model's classes."""
        return sum(c.photos for c in self.classes)

    def counted(self, kind: str) -> int:
        """Photos of `known` or of `new` classes."""
        return sum(c.photos for c in self.classes if c.kind == kind)

    def share(self, kind: str | None = None) -> Share:
        """How many were right, of all or of `known` or `new` classes."""
        own = [c for c in self.classes if kind in (None, c.kind)]
        return Share(sum(c.right for c in own), sum(c.photos for c in own))

    def mistakes(self, most: int = MISTAKES) -> list[Mistake]:
        """What is mistaken for what, most frequent first."""
        wrong = self.matrix.copy()
        for row, result in enumerate(self.classes):
            wrong[row, self.names.index(result.name)] = 0
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        places = zip(*np.unravel_index(order, wrong.shape), strict=True)
        return [
            Mistake(self.classes[row].name, self.names[column], int(wrong[row, column]))
            for row, column in places
            if wrong[row, column]
        ]

    def wrong(self) -> list[PhotoResult]:
        """Photos with a wrong answer, the most certain first; then strangers that were named."""
        found = [result for result in self.results if not result.right]
        return sorted(
            found, key=lambda one: (one.stranger, one.answer == UNKNOWN, -one.probability)
        )

    def to_json(self) -> dict[str, Any]:
        told = [{**vars(r), "right": r.right} for r in self.results]
        return {
            **({"results": told} if told else {}),
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
    current: ModelVersion,
    features: Features,
    labels: Sequence[str],
    *,
    reject: float | None = None,
    learned_from: int = 0,
    images: Sequence[str] = (),
) -> Evaluation:
    """Judge a model on embeddings (n, d) of photos whose classes are `labels` (n,).

    images : (n,) names of the photos, for results that name them
    """
    names, classifier = current.names, current.classifier
    labels = current.current_names(labels)
    column = {name: place for place, name in enumerate(names)}
    true = np.array([column.get(label, -1) for label in labels])
    predicted = np.array([column[name] for name in classifier.predict(features).tolist()])
    inside = true >= 0
    known, new = inside & (true < current.n_known), true >= current.n_known
    right = predicted == true
    tested = np.unique(true[inside])
    matrix = np.zeros((len(tested), len(names)), dtype=np.int64)
    np.add.at(matrix, (np.searchsorted(tested, true[inside]), predicted[inside]), 1)
    rate = current.reject if reject is None else reject
    fits = np.full(len(features), np.nan)
    if classifier.rejection_.is_on:
        fits = classifier.familiarity(features)
    on_known, on_new = average(right[known]), average(right[new])
    return Evaluation(
        classes=tuple(
            ClassResult(
                names[c], current.kind_at(c), int((true == c).sum()), int(right[true == c].sum())
            )
            for c in tested.tolist()
        ),
        accuracy=average(right[inside]),
        known=on_known,
        new=on_new,
        hm=harmonic(on_known, on_new),
        answered=average((right & ~(fits < rate))[inside]),
        names=tuple(names),
        matrix=matrix,
        rejections=judge_rejection(fits, known, new, rate),
        learned_from=learned_from,
        results=_results(current, features, labels, images, rate) if images else (),
    )


def _results(
    current: ModelVersion,
    features: Features,
    labels: Sequence[str],
    images: Sequence[str],
    rate: float,
) -> tuple[PhotoResult, ...]:
    own, answers = set(current.names), predict(current, features, images, reject=rate)
    return tuple(
        PhotoResult(a.image, label, label not in own, a.label, a.best, round(a.probability, 6))
        for a, label in zip(answers, labels, strict=True)
    )


def judge_rejection(fits: NDArray[np.float64], known: Mask, new: Mask, rate: float) -> Rejections:
    """Rates at a threshold, and without one.

    fits : (n,) familiarity, NaN where the model cannot tell; known, new : (n,) which photos are of
        such classes, neither for strange ones
    """
    strange = ~(known | new)
    rejected = fits < rate
    # Without familiarity nothing can be told apart; auroc and fpr_at_tpr of nothing are NaN.
    others = fits[strange & ~np.isnan(fits)]
    return Rejections(
        rate=rate,
        known=average(rejected[known]),
        new=average(rejected[new]),
        strange=average(rejected[strange]),
        strange_photos=int(strange.sum()),
        auroc=auroc(fits[~strange], others),
        auroc_known=auroc(fits[known], others),
        auroc_new=auroc(fits[new], others),
        fpr95=fpr_at_tpr(fits[~strange], others),
    )


def sides(current: ModelVersion, features: Features, columns: Sequence[int]) -> Answers:
    """The best known and the best new class of embeddings (n, d), before δ is added.

    One pass serves every δ, since δ moves all new classes alike.

    columns : (n,) the class of each photo, -1 for one that the model does not know
    """
    head = current.classifier.head_
    logits = head.host.unit_logits(head.embed(features.astype(head.dtype, copy=False)))
    if head.adapted:
        logits += head.gamma * head.beta
    return Answers.of(logits, columns, current.n_known)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 6)
