"""Who is taken for whom: the most confused pairs, and base classes that swallow novel ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cala.reports.artifact import Array, Artifact
from cala.reports.study import Study
from cala.reports.table import Row, Table, plain, text
from cala.reports.words import one_cell

PAIRS = 12
NOVEL = 12
SWALLOWERS = 3


@dataclass(frozen=True)
class Swallowed:
    """One novel class, its share of images lost to base, and the base classes that take most.

    share_before : None where the artifact does not know
    by : (base column, share of the novel class's images)
    """

    column: int
    share: float
    share_before: float | None
    by: list[tuple[int, float]]


def swallowed(artifact: Artifact) -> list[Swallowed]:
    """All novel classes that lose images to base classes, the worst first."""
    shares = row_shares(artifact.confusion("after"))
    before = artifact.confusion("before")
    shares_before = None if before is None else row_shares(before)
    b = artifact.n_base
    found = []
    for column in range(b, artifact.n_classes):
        row = shares[column, :b]
        order = np.argsort(-row, kind="stable")[:SWALLOWERS]
        by = [(int(i), float(row[i])) for i in order if row[i] > 0]
        then = None if shares_before is None else float(shares_before[column, :b].sum())
        found.append(Swallowed(column, float(row.sum()), then, by))
    kept = [s for s in found if s.by]
    return sorted(kept, key=lambda s: (-s.share, s.column))


def swallowed_table(study: Study, method: str) -> Table:
    """Novel classes and the base classes that take most of their images, by name."""
    artifact = study.artifacts[method]
    names = artifact.names()
    rows = []
    for s in swallowed(artifact)[:NOVEL]:
        by = ", ".join(f"{names[i]} {100 * share:.0f} %" for i, share in s.by)
        then = plain(None if s.share_before is None else 100 * s.share_before, 0)
        rows.append(Row([text(names[s.column]), text(by), then, plain(100 * s.share, 0)]))
    caption = (
        f"{method}: the novel classes that lose most images to base classes, and the base classes "
        f"that take most of them, as shares of the novel class's images; {one_cell(study, method)}."
    )
    columns = ["novel class", "goes to", "to base before, %", "to base after, %"]
    return Table("swallowed", "Which base classes swallow which novel ones", caption, columns, rows)


def pairs_table(study: Study, method: str) -> Table:
    """The most frequent mistakes, whatever side they are on."""
    artifact = study.artifacts[method]
    names = artifact.names()
    after, before = artifact.confusion("after"), artifact.confusion("before")
    shares = row_shares(after).copy()
    np.fill_diagonal(shares, 0.0)
    then = None if before is None else row_shares(before)
    order = np.argsort(-shares, axis=None, kind="stable")[:PAIRS]
    rows = []
    for true, given in zip(*np.unravel_index(order, shares.shape), strict=True):
        if shares[true, given] <= 0:
            break
        kind = f"{_side(true, artifact)} → {_side(given, artifact)}"
        old = plain(None if then is None else 100 * then[true, given], 0)
        new = plain(100 * shares[true, given], 0)
        rows.append(Row([text(names[true]), text(names[given]), text(kind), old, new]))
    caption = (
        f"{method}: the class pairs that are confused most, as a share of the true class's images; "
        f"{one_cell(study, method)}."
    )
    columns = ["true class", "taken for", "side", "before, %", "after, %"]
    return Table("confused_pairs", "Most confused pairs", caption, columns, rows)


def _side(column: int, artifact: Artifact) -> str:
    return "base" if column < artifact.n_base else "novel"


def row_shares(counts: Array | None) -> Array:
    """Counts as shares of their row; rows without images are zero."""
    assert counts is not None  # every artifact has the matrix after adjustment
    total = counts.sum(1, keepdims=True)
    return np.divide(counts, total, out=np.zeros(counts.shape), where=total > 0)
