"""How well a score tells known images from unknown ones: pure functions of two sets of scores.

Higher scores mean more familiar. Known images are the positives throughout.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

TPR = 0.95


def auroc(known: ArrayLike, unknown: ArrayLike) -> float:
    """How often a known image scores higher than an unknown one, ties counting half.

    known : (n,); unknown : (m,) -> in [0, 1], NaN without one of the two

    >>> auroc([0.9, 0.5], [0.5, 0.1])
    0.875
    """
    high, low = np.asarray(known, dtype=np.float64), np.sort(np.asarray(unknown, dtype=np.float64))
    if not len(high) or not len(low):
        return float("nan")
    below = np.searchsorted(low, high, side="left")
    not_above = np.searchsorted(low, high, side="right")
    return float((below + not_above).mean() / (2 * len(low)))


def fpr_at_tpr(known: ArrayLike, unknown: ArrayLike, tpr: float = TPR) -> float:
    """Share of unknown images let in by the strictest threshold that lets in `tpr` of the known.

    known : (n,); unknown : (m,) -> in [0, 1], NaN without one of the two

    >>> fpr_at_tpr([0.9, 0.8, 0.7, 0.6], [0.65, 0.1], tpr=0.75)
    0.0
    """
    kept, other = np.sort(np.asarray(known, dtype=np.float64)), np.asarray(unknown)
    if not len(kept) or not len(other):
        return float("nan")
    lost = int(np.floor((1 - tpr) * len(kept) + 1e-9))
    return float((other >= kept[min(lost, len(kept) - 1)]).mean())
