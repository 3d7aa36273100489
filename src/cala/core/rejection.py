"""When nothing fits: from a class's score to the share of its own images that score no higher.

Classes known from few shots sit farther from their own images than base classes do, so one
threshold on the score cannot serve both. A p-value can: it compares an image's score for class c
with the scores that genuine images got for classes like c. An image is unknown when no class
gives it a p-value of the asked rate, so a genuine image is turned away at most about that often,
known from many images or from few.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import Self

from cala.core.rows import Array

MOST_POINTS = 512


@dataclass(frozen=True)
class Rejection:
    """Sorted scores of genuine images: one table for base classes, one per number of shots.

    shots : (S,) int64, ascending
    scores : (1 + S, Q) ascending, base classes first, then one row per number of shots;
        +inf behind the end of a shorter row
    sizes : (1 + S,) int64, how many of a row's places are taken

    Without a base table (size 0) nothing is known about how images score: it is off.
    """

    shots: Array
    scores: Array
    sizes: Array

    @classmethod
    def of(cls, base: Array, novel: dict[int, Array]) -> Self:
        """From the scores of base queries (n,) and, per number of shots, of queries (m,) of such
        classes. A number of shots without any query is left out."""
        shots = sorted(k for k, scores in novel.items() if len(scores))
        rows = [thinned(base), *(thinned(novel[k]) for k in shots)]
        sizes = np.array([len(row) for row in rows])
        table = np.full((len(rows), max(int(sizes.max()), 1)), np.inf)
        for i, row in enumerate(rows):
            table[i, : len(row)] = row
        return cls(np.array(shots, dtype=np.int64), table, sizes)

    @classmethod
    def off(cls) -> Self:
        """Nothing is ever unknown."""
        return cls.of(np.zeros(0), {})

    @property
    def is_on(self) -> bool:
        return bool(self.sizes[0] > 0)

    def row_of(self, shots: Array, n_base: int) -> Array:
        """Which row of the table speaks for each class: (C,) shots -> (C,).

        A class takes the largest K not above its own number of shots, or the smallest there is.
        """
        place = np.searchsorted(self.shots, shots, side="right")
        rows = np.maximum(place, min(1, len(self.shots)))
        rows[:n_base] = 0
        return rows

    def p_values(self, scores: Array, shots: Array, n_base: int) -> Array:
        """The largest p-value that any class gives: (n,) float64 in (0, 1]; 1 where it is off.

        scores : (n, C) score of each image for each class, base columns first
        shots : (C,) images that made each class

        Within one row of the table a higher score is a higher p-value, so only the best class
        of each row counts.
        """
        best = np.zeros(len(scores))
        if not self.is_on:
            return best + 1
        rows = self.row_of(shots, n_base)
        for row in np.unique(rows).tolist():
            top = scores[:, rows == row].max(1).astype(np.float64)
            best = np.maximum(best, p_value(self.scores[row, : self.sizes[row]], top))
        return best


def p_value(calibration: Array, scores: Array) -> Array:
    """(1 + how many calibration scores are not above) / (1 + all of them).

    calibration : (m,) ascending; scores : (n,) -> (n,)

    >>> p_value(np.array([1.0, 2.0, 3.0]), np.array([0.0, 2.0]))
    array([0.25, 0.75])
    """
    below = np.searchsorted(calibration, scores, side="right")
    return (1 + below) / (1 + len(calibration))


def thinned(scores: Array, most: int = MOST_POINTS) -> Array:
    """Scores in ascending order, float64; of more than `most` that many, evenly spread."""
    ordered = np.sort(scores.astype(np.float64))
    if len(ordered) <= most:
        return ordered
    places = np.arange(1, most + 1) * (len(ordered) + 1) / (most + 1) - 1
    return ordered[np.rint(places).astype(np.int64)]
