"""When nothing fits: from a class's score to the share of its own images that score no higher.

Classes known from few shots sit farther from their own images than base classes do, so one
threshold on the score cannot serve both. A p-value can: it compares an image's score for class c
with the scores that genuine images got for classes like c. An image is unknown when no class
gives it a p-value of the asked rate, so a genuine image is turned away at most about that often,
known from many images or from few.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

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

    shots: Tensor
    scores: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, base: Tensor, novel: dict[int, Tensor]) -> Rejection:
        """From the scores of base queries (n,) and, per number of shots, of queries (m,) of such
        classes. A number of shots without any query is left out."""
        shots = sorted(k for k, scores in novel.items() if len(scores))
        rows = [thinned(base), *(thinned(novel[k]) for k in shots)]
        sizes = torch.tensor([len(row) for row in rows])
        table = torch.full((len(rows), max(int(sizes.max()), 1)), torch.inf, dtype=torch.float64)
        for i, row in enumerate(rows):
            table[i, : len(row)] = row
        return cls(torch.tensor(shots, dtype=torch.int64), table, sizes)

    @classmethod
    def off(cls) -> Rejection:
        """Nothing is ever unknown."""
        return cls.of(torch.zeros(0), {})

    @property
    def is_on(self) -> bool:
        return bool(self.sizes[0] > 0)

    def row_of(self, shots: Tensor, n_base: int) -> Tensor:
        """Which row of the table speaks for each class: (C,) shots -> (C,).

        A class takes the largest K not above its own number of shots, or the smallest there is.
        """
        place = torch.searchsorted(self.shots, shots.cpu().contiguous(), right=True)
        rows = place.clamp_min(min(1, len(self.shots)))
        rows[:n_base] = 0
        return rows

    def p_values(self, scores: Tensor, shots: Tensor, n_base: int) -> Tensor:
        """The largest p-value that any class gives: (n,) float64 in (0, 1]; 1 where it is off.

        scores : (n, C) score of each image for each class, base columns first
        shots : (C,) images that made each class

        Within one row of the table a higher score is a higher p-value, so only the best class
        of each row counts.
        """
        best = torch.zeros(len(scores), dtype=torch.float64)
        if not self.is_on:
            return best + 1
        rows = self.row_of(shots, n_base).to(scores.device)
        for row in rows.unique().tolist():
            top = scores[:, rows == row].amax(1).to("cpu", torch.float64)
            best = torch.maximum(best, p_value(self.scores[row, : self.sizes[row]], top))
        return best

    def tensors(self) -> dict[str, Tensor]:
        """What a model on disk keeps."""
        return {"shots": self.shots, "scores": self.scores, "sizes": self.sizes}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> Rejection:
        """The one that `tensors` came from."""
        return cls(tensors["shots"], tensors["scores"], tensors["sizes"])


def p_value(calibration: Tensor, scores: Tensor) -> Tensor:
    """(1 + how many calibration scores are not above) / (1 + all of them).

    calibration : (m,) ascending; scores : (n,) -> (n,)

    >>> p_value(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.0, 2.0]))
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    below = torch.searchsorted(calibration, scores.to(calibration.dtype), right=True)
    return (1 + below).to(torch.float64) / (1 + len(calibration))


def thinned(scores: Tensor, most: int = MOST_POINTS) -> Tensor:
    """Scores in ascending order, float64; of more than `most` that many, evenly spread."""
    ordered = scores.detach().to("cpu", torch.float64).sort().values
    if len(ordered) <= most:
        return ordered
    places = (torch.arange(1, most + 1, dtype=torch.float64) * (len(ordered) + 1) / (most + 1)) - 1
    return ordered[places.round().long()]
