"""Intervals over draws of shots and over test images, and paired differences.

They cover the sampling of shots and of test images, not of encoders or of training seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cala.errors import InputError


@dataclass(frozen=True)
class Interval:
    """A mean with the half width of its interval.

    half : NaN for a single draw, and where too few images are left without a group of them
    n : draws
    groups : of test images that the interval covers; 0 for an interval over draws alone
    """

    mean: float
    half: float
    n: int
    groups: int = 0

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return abs(self.mean) > self.half


def mean_interval(
    values: Sequence[float], left_out: ArrayLike | None = None, level: float = 0.95
) -> Interval:
    """Mean of draws and its t-interval over draws and test images.

    The squared error of the mean is the variance over draws by the number of draws, plus the
    jackknife variance over groups of test images; degrees of freedom are Satterthwaite's, and the
    interval is never narrower than over draws alone. What varies with draw and image together is
    in both parts, so it is rather too wide than too narrow.

    values : one per draw
    left_out : (G,) the mean of the same draws without each group of test images. None, or NaN
        throughout: not known, and the interval is over draws alone.

    >>> mean_interval([1.0, 2.0, 3.0]).mean
    2.0
    >>> alone = mean_interval([1.0, 2.0, 3.0])
    >>> both = mean_interval([1.0, 2.0, 3.0], [1, 1.5, 2.5, 3])
    >>> round(alone.half, 2), round(both.half, 2)
    (2.48, 4.14)
    """
    v = np.asarray(values, dtype=np.float64)
    if len(v) < 2:
        return Interval(float(v.mean()) if len(v) else float("nan"), float("nan"), len(v))
    mean, draws, free = float(v.mean()), v.var(ddof=1) / len(v), len(v) - 1
    half = _half(draws, free, level)
    without = np.asarray([] if left_out is None else left_out, dtype=np.float64)
    groups = 0 if len(without) < 2 or np.isnan(without).all() else len(without)
    if groups:
        images = (groups - 1) * without.var()
        total = draws + images
        if total > 0:
            free = 1 / ((draws / total) ** 2 / free + (images / total) ** 2 / (groups - 1))
        # With two or three draws Satterthwaite's degrees alone would cover too little.
        half = np.maximum(half, _half(total, free, level))
    return Interval(mean, float(half), len(v), groups)


def _half(variance: float, degrees: float, level: float) -> float:
    from scipy.special import stdtrit  # scipy takes long to import

    return float(stdtrit(degrees, 0.5 + level / 2) * np.sqrt(variance))


def paired(
    values: Sequence[float],
    reference: Sequence[float],
    left_out: ArrayLike | None = None,
    reference_left_out: ArrayLike | None = None,
) -> Interval:
    """Interval of the difference between two methods on the same draws and test images.

    left_out, reference_left_out : as for `estimate`; it takes both to cover test images
    """
    if len(values) != len(reference):
        detail = f"{len(values)} draws are compared with {len(reference)}"
        raise InputError(detail, "give the same draws of both", code="not_paired")
    both = None
    if left_out is not None and reference_left_out is not None:
        ours, theirs = np.asarray(left_out), np.asarray(reference_left_out)
        both = ours - theirs if len(ours) == len(theirs) else None  # else of other images
    return mean_interval(np.subtract(values, reference).tolist(), both)
