"""Accuracy of each class without and with the adapter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cala.reports.artifact import Array
from cala.reports.study import Study
from cala.reports.table import Row, Table, plain, text
from cala.reports.words import one_cell

MOST = 10


@dataclass(frozen=True)
class ClassGains:
    """before, after : (C,) accuracy of each class in percent; against : what `before` is"""

    method: str
    against: str
    names: list[str]
    n_base: int
    before: Array
    after: Array

    @property
    def gain(self) -> Array:
        return self.after - self.before

    def extremes(self, most: int = MOST) -> list[int]:
        """Columns with the largest gains, then those with the largest losses."""
        gain = self.gain
        order = np.argsort(-gain, kind="stable")
        won = [int(i) for i in order[:most] if gain[i] > 0]
        lost = [int(i) for i in order[::-1][:most] if gain[i] < 0]
        return won + lost[::-1]


def class_gains(study: Study) -> ClassGains | None:
    """Of the focus against itself without its adapter, else against the first method."""
    method = study.focus
    artifact = study.artifacts.get(method)
    if artifact is None:
        return None
    before, against = artifact.confusion("before"), f"{method} without its adapter"
    if before is None or not study.adapter(method):
        other = study.artifacts.get(study.reference)
        if other is None or study.reference == method or other.n_classes != artifact.n_classes:
            return None
        before, against = other.confusion("after"), study.reference
    after = artifact.confusion("after")
    if before is None or after is None:
        return None
    return ClassGains(
        method, against, artifact.names(), artifact.n_base, _accuracy(before), _accuracy(after)
    )


def gains_table(study: Study, gains: ClassGains) -> Table:
    """The classes that gain and lose most."""
    rows = []
    for column in gains.extremes():
        side = "base" if column < gains.n_base else "novel"
        values = [plain(gains.before[column], 0), plain(gains.after[column], 0)]
        gain = plain(gains.gain[column], 0, signed=True)
        rows.append(Row([text(gains.names[column]), text(side), *values, gain]))
    caption = (
        f"Accuracy of single classes, {gains.method} against {gains.against}, percent and points; "
        f"the {MOST} largest gains and losses; {one_cell(study, gains.method)}."
    )
    columns = ["class", "side", "before", "after", "gain"]
    return Table("classes", "Classes that gain and lose", caption, columns, rows)


def _accuracy(counts: Array) -> Array:
    total = counts.sum(1)
    return 100 * np.divide(counts.diagonal(), total, out=np.zeros(len(total)), where=total > 0)
