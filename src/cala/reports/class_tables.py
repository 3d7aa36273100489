"""Tables of single classes and of calibration, from the artifact of one draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.reports.phrases import one_cell
from cala.reports.runs import Artifact
from cala.reports.study import Study
from cala.table import Table, TableCell, plain, row

_PAIRS = 12
NOVEL = 12
SWALLOWERS = 3
_MOST = 10
BINS = 15


@dataclass(frozen=True)
class Swallowed:
    """One novel class, its share of images lost to base, and the base classes that take most.

    share_before : NaN where the artifact does not know
    by : (base column, share of the novel class's images)
    """

    column: int
    share: float
    share_before: float
    by: list[tuple[int, float]]


def swallowed(artifact: Artifact) -> list[Swallowed]:
    """All novel classes that lose images to base classes, the worst first."""
    b = artifact.n_base
    after, before = (artifact.shares(when)[:, :b] for when in ("after", "before"))
    found = []
    for column in range(b, artifact.n_classes):
        taken = after[column]
        order = np.argsort(-taken, kind="stable")[:SWALLOWERS]
        by = [(int(i), float(taken[i])) for i in order if taken[i] > 0]
        if by:
            found.append(Swallowed(column, float(taken.sum()), float(before[column].sum()), by))
    return sorted(found, key=lambda s: (-s.share, s.column))


def swallowed_table(study: Study, method: str) -> Table:
    """Novel classes and the base classes that take most of their images, by name."""
    artifact = study.artifacts[method]
    names = artifact.names()
    rows = []
    for s in swallowed(artifact)[:NOVEL]:
        by = ", ".join(f"{names[i]} {100 * share:.0f} %" for i, share in s.by)
        rows.append(row(names[s.column], by, _percent(s.share_before), _percent(s.share)))
    caption = (
        f"{method}: the novel classes that lose most images to base classes, and the base classes "
        f"that take most of them, as shares of the novel class's images; {one_cell(study, method)}."
    )
    columns = ["novel class", "goes to", "to base before, %", "to base after, %"]
    return Table("swallowed", "Which base classes swallow which novel ones", caption, columns, rows)


def pairs_table(study: Study, method: str) -> Table:
    """The most frequent mistakes, whatever side they are on."""
    artifact = study.artifacts[method]
    names, before, after = artifact.names(), artifact.shares("before"), artifact.shares("after")
    np.fill_diagonal(after, 0.0)
    order = np.argsort(-after, axis=None, kind="stable")[:_PAIRS]
    rows = []
    for pair in zip(*np.unravel_index(order, after.shape), strict=True):
        if after[pair] > 0:
            true, given = (names[column] for column in pair)
            sides = " → ".join("base" if c < artifact.n_base else "novel" for c in pair)
            rows.append(row(true, given, sides, _percent(before[pair]), _percent(after[pair])))
    caption = (
        f"{method}: the class pairs that are confused most, as a share of the true class's images; "
        f"{one_cell(study, method)}."
    )
    columns = ["true class", "taken for", "side", "before, %", "after, %"]
    return Table("confused_pairs", "Most confused pairs", caption, columns, rows)


def _percent(share: float) -> TableCell:
    return plain(100 * share, 0)


@dataclass(frozen=True)
class ClassGains:
    """before, after : (C,) accuracy of each class in percent; against : what `before` is"""

    method: str
    against: str
    names: list[str]
    n_base: int
    before: NDArray[Any]
    after: NDArray[Any]

    @property
    def gain(self) -> NDArray[Any]:
        return self.after - self.before

    def extremes(self, most: int = _MOST) -> list[int]:
        """Columns with the largest gains, then those with the largest losses."""
        gain = self.gain
        order = np.argsort(-gain, kind="stable")
        won = [int(i) for i in order[:most] if gain[i] > 0]
        lost = [int(i) for i in order[::-1][:most] if gain[i] < 0]
        return won + lost[::-1]


def class_gains(study: Study) -> ClassGains | None:
    """Of the focus against itself without its adapter, else against the first method."""
    method, reference = study.focus, study.reference
    artifact, other = (study.artifacts.get(name) for name in (method, reference))
    if artifact is None:
        return None
    before, against = artifact.shares("before"), f"{method} without its adapter"
    if np.isnan(before).any() or not study.adapter(method):
        if other is None or reference == method or other.n_classes != artifact.n_classes:
            return None
        before, against = other.shares("after"), reference
    found = (100 * shares.diagonal() for shares in (before, artifact.shares("after")))
    return ClassGains(method, against, artifact.names(), artifact.n_base, *found)


def gains_table(study: Study, gains: ClassGains) -> Table:
    """The classes that gain and lose most."""
    rows = []
    for column in gains.extremes():
        side = "base" if column < gains.n_base else "novel"
        values = [plain(gains.before[column], 0), plain(gains.after[column], 0)]
        gain = plain(gains.gain[column], 0, signed=True)
        rows.append(row(gains.names[column], side, *values, gain))
    caption = (
        f"Accuracy of single classes, {gains.method} against {gains.against}, percent and points; "
        f"the {_MOST} largest gains and losses; {one_cell(study, gains.method)}."
    )
    columns = ["class", "side", "before", "after", "gain"]
    return Table("classes", "Classes that gain and lose", caption, columns, rows)


@dataclass(frozen=True)
class Reliability:
    """Per bin: number of images, mean confidence, accuracy (NaN in empty bins); ece : in percent"""

    count: NDArray[Any]
    confidence: NDArray[Any]
    accuracy: NDArray[Any]
    ece: float


def reliability(confidence: NDArray[Any], right: NDArray[Any]) -> Reliability:
    """Bins of equal width over [0, 1].

    >>> round(reliability(np.array([0.9, 0.9]), np.array([True, False])).ece, 6)
    40.0
    """
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    count = np.bincount(place, minlength=BINS).astype(float)
    with np.errstate(invalid="ignore"):
        sure = np.bincount(place, confidence, BINS) / count
        correct = np.bincount(place, right.astype(float), BINS) / count
    share = count / max(len(confidence), 1)
    ece = 100 * float(np.nansum(share * np.abs(sure - correct)))
    return Reliability(count, sure, correct, ece)


def artifact_reliability(artifact: Artifact, when: str, side: str = "all") -> Reliability | None:
    """`before` or `after` the adjustment, for all images or for base or novel ones."""
    names = ("labels", f"predicted_{when}", f"confidence_{when}")
    if not artifact.has(*names):
        return None
    labels, predicted, confidence = (artifact[n] for n in names)
    base = labels < artifact.n_base
    rows = {"all": np.ones(len(labels), bool), "base": base, "novel": ~base}[side]
    return reliability(confidence[rows].astype(float), (labels == predicted)[rows])


def calibration_table(study: Study) -> Table | None:
    """ECE of every method before and after its adapter."""
    rows = []
    for method in study.methods:
        artifact = study.artifacts.get(method)
        if artifact is None:
            continue
        before = artifact_reliability(artifact, "before") if study.adapter(method) else None
        after = [artifact_reliability(artifact, "after", s) for s in ("all", "base", "novel")]
        if found := [before, *after] if any(after) else []:
            rows.append(row(method, *(plain(r.ece if r else None, 1) for r in found)))
    if not rows:
        return None
    caption = (
        f"Expected calibration error in points ({BINS} bins of equal width; lower is better) of "
        "the probability of the predicted class, one draw after the last session."
    )
    columns = ["method", "without adapter", "ECE", "base images", "novel images"]
    return Table("calibration", "Calibration", caption, columns, rows)
