"""Calibration of the probabilities: expected calibration error and its parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cala.reports.artifact import Array, Artifact
from cala.reports.study import Study
from cala.reports.table import Row, Table, plain, text

BINS = 15


@dataclass(frozen=True)
class Reliability:
    """Per bin: number of images, mean confidence, accuracy (NaN in empty bins); ece : in percent"""

    count: Array
    confidence: Array
    accuracy: Array
    ece: float


def reliability(confidence: Array, right: Array, bins: int = BINS) -> Reliability:
    """Bins of equal width over [0, 1].

    >>> round(reliability(np.array([0.9, 0.9]), np.array([True, False])).ece, 6)
    40.0
    """
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins).astype(float)
    with np.errstate(invalid="ignore"):
        sure = np.bincount(place, confidence, bins) / count
        correct = np.bincount(place, right.astype(float), bins) / count
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
        found = [artifact_reliability(artifact, "before")]
        found += [
            artifact_reliability(artifact, "after", side) for side in ("all", "base", "novel")
        ]
        if any(found):
            if not study.adapter(method):
                found[0] = None
            rows.append(Row([text(method), *(plain(r.ece if r else None, 1) for r in found)]))
    if not rows:
        return None
    caption = (
        f"Expected calibration error in points ({BINS} bins of equal width; lower is better) of "
        "the probability of the predicted class, one draw after the last session."
    )
    columns = ["method", "without adapter", "ECE", "base images", "novel images"]
    return Table("calibration", "Calibration", caption, columns, rows)
