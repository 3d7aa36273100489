"""Intervals over draws, and differences paired on the same draws.

They cover the sampling of shots, not of encoders or test images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Estimate:
    """A mean with the half width of its t-interval (NaN for a single draw)."""

    mean: float
    half: float
    n: int

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return abs(self.mean) > self.half


def estimate(values: Sequence[float], level: float = 0.95) -> Estimate:
    """Mean and t-interval over draws.

    >>> estimate([1.0, 2.0, 3.0]).mean
    2.0
    """
    v = np.asarray(values, dtype=np.float64)
    if len(v) < 2:
        return Estimate(float(v.mean()) if len(v) else float("nan"), float("nan"), len(v))
    quantile = stats.t.ppf(0.5 + level / 2, len(v) - 1)
    return Estimate(float(v.mean()), float(quantile * v.std(ddof=1) / np.sqrt(len(v))), len(v))


def paired(values: Sequence[float], reference: Sequence[float]) -> Estimate:
    """Interval of the difference between two methods on the same draws."""
    if len(values) != len(reference):
        raise ValueError(f"{len(values)} draws against {len(reference)}: pair the same draws")
    return estimate(np.subtract(values, reference).tolist())
