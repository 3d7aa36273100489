"""What a model says about a photo, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.core.cala import normalise
from cala.errors import InputError
from cala.heads.checks import check_number
from cala.model.version import UNKNOWN, Features, ModelVersion

ROWS = 4096
MODES = ("on", "off", "report")


@dataclass(frozen=True)
class Relative:
    """A class near a photo: cosine to its prototype, its logit, and what β and δ add to that."""

    label: str
    kind: str
    cosine: float
    logit: float
    shift: float


@dataclass(frozen=True)
class Why:
    """The closest classes, and the answer without the adapter."""

    closest: tuple[Relative, ...]
    without_adapter: str

    @property
    def changed(self) -> bool:
        """Whether the adapter decided."""
        return self.closest[0].label != self.without_adapter


@dataclass(frozen=True)
class Prediction:
    """One photo's answer.

    Parameters
    ----------
    image : str
        Path or name of the photo.
    label : str
        The best class, or "unknown".
    best : str
        The best class whether or not it fits.
    kind : str
        "known" if `best` was there at `fit`, "new" if it was added.
    probability : float
        How likely `best` is among the model's classes.
    familiarity : float
        Fraction of photos of that class that look no more familiar; NaN where the model
        cannot tell.
    unknown : bool
        Whether no class fits.
    top : tuple of (str, float)
        The likeliest classes with their probabilities.
    why : Why, optional
        The closest classes, and the answer without the adapter.

    Examples
    --------
    >>> sure = Prediction("a.jpg", "robin", "robin", "known", 0.98, 0.4, False, (("robin", 0.98),))
    >>> sure.label, sure.to_json()["probability"]
    ('robin', 0.98)
    """

    image: str
    label: str
    best: str
    kind: str
    probability: float
    familiarity: float
    unknown: bool
    top: tuple[tuple[str, float], ...]
    why: Why | None = None

    def to_json(self) -> dict[str, Any]:
        fits = self.familiarity
        out = {
            **asdict(self),
            "probability": round(self.probability, 6),
            "familiarity": None if np.isnan(fits) else round(fits, 6),
            "top": [{"label": n, "probability": round(p, 6)} for n, p in self.top],
        }
        if self.why is None:
            del out["why"]
        else:
            out["why"]["changed"] = self.why.changed
        return out


def predict(
    current: ModelVersion,
    features: Features,
    names: Sequence[str],
    *,
    top: int = 1,
    unknown: str = "on",
    reject: float | None = None,
    why: bool = False,
) -> list[Prediction]:
    """Answers for photos (n, d) called `names`."""
    if unknown not in MODES:
        raise InputError(f"unknown is {unknown!r}", f"use {', '.join(MODES)}", field="unknown")
    top = int(check_number("top", top, 1, whole=True))
    rate = current.reject if reject is None else reject
    head, labels = current.classifier.head_, current.names
    rejection = current.classifier.rejection_
    answers = []
    for start in range(0, len(features), ROWS):
        part = features[start : start + ROWS]
        unit = head.embed(part.astype(head.dtype, copy=False))
        plain = head.host.unit_logits(unit)
        shares = head.probabilities(plain + head.shift)
        columns = largest(shares, top)
        values = np.take_along_axis(shares, columns, 1).tolist()
        fits = np.full(len(part), np.nan)
        if unknown != "off" and rejection.is_on:
            fits = rejection.p_values(part)
        reasons = _reasons(current, unit[:, : head.dim], plain, max(top, 3)) if why else None
        for row, best in enumerate(columns.tolist()):
            order = [labels[column] for column in best]
            strange = bool(fits[row] < rate)  # never where it is NaN
            answers.append(
                Prediction(
                    image=names[start + row],
                    label=UNKNOWN if strange and unknown == "on" else order[0],
                    best=order[0],
                    kind=current.kind_at(best[0]),
                    probability=values[row][0],
                    familiarity=float(fits[row]),
                    unknown=strange,
                    top=tuple(zip(order, values[row], strict=True)),
                    why=reasons[row] if reasons else None,
                )
            )
    return answers


def largest(values: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Columns of the largest values of each row, in order: (n, C) -> (n, at most count)."""
    return np.argsort(-values, axis=1, kind="stable")[:, :count]


def _reasons(
    current: ModelVersion, unit: NDArray[Any], plain: NDArray[Any], count: int
) -> list[Why]:
    labels, head = current.names, current.classifier.head_
    cosines, shift = unit @ normalise(head.prototypes).T, head.shift
    without = plain.argmax(1).tolist()
    reasons = []
    for row, columns in enumerate(largest(plain + shift, count).tolist()):
        closest = tuple(
            Relative(
                labels[column],
                current.kind_at(column),
                float(cosines[row, column]),
                float(plain[row, column]),
                float(shift[column]),
            )
            for column in columns
        )
        reasons.append(Why(closest, labels[without[row]]))
    return reasons
