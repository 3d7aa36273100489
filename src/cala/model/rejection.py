"""What calling photos unknown costs and brings, on labelled photos."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.rejection_metrics import auroc, fpr_at_tpr


@dataclass(frozen=True)
class Rejections:
    """Shares of photos called unknown at a rate, and how well familiarity tells them apart.

    known, new : of photos of known and of new classes, where it is wrong
    strange : of photos of classes that the model does not know, where it is right
    auroc_known, auroc_new, auroc : chance that a photo of the model's classes looks more familiar
        than a strange one; NaN without strange photos
    fpr95 : share of strange photos that pass where 95 % of the others do
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
        return {
            name: None if isinstance(value, float) and np.isnan(value) else value
            for name, value in vars(self).items()
        }


def judge_rejection(
    fits: NDArray[np.float64],
    known: NDArray[np.bool_],
    new: NDArray[np.bool_],
    rate: float,
) -> Rejections:
    """Rates at a threshold, and without one.

    fits : (n,) familiarity, NaN where the model cannot tell; known, new : (n,) which photos are of
        such classes, neither for strange ones
    """
    strange = ~(known | new)
    rejected = fits < rate

    def share(of: NDArray[np.bool_]) -> float:
        return float(rejected[of].mean()) if of.any() else float("nan")

    def area(of: NDArray[np.bool_]) -> float:
        if np.isnan(fits).any() or not of.any() or not strange.any():
            return float("nan")
        return auroc(fits[of], fits[strange])

    tellable = not np.isnan(fits).any() and strange.any() and not strange.all()
    return Rejections(
        rate=rate,
        known=share(known),
        new=share(new),
        strange=share(strange),
        strange_photos=int(strange.sum()),
        auroc=area(~strange),
        auroc_known=area(known),
        auroc_new=area(new),
        fpr95=fpr_at_tpr(fits[~strange], fits[strange], 0.95) if tellable else float("nan"),
    )
