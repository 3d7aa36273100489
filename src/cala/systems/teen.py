"""TEEN (Wang et al., NeurIPS 2023): few-shot prototypes lean towards similar base prototypes."""

from __future__ import annotations

import numpy as np
from typing_extensions import Unpack

from cala.core.cala import normalise
from cala.core.rows import Array
from cala.heads.base_data import BaseData
from cala.heads.checks import check_number
from cala.heads.nearest_mean import NearestMean
from cala.heads.table import ScaledOptions
from cala.systems.published import Published

_BIRDS = {"batch": 128, "lr": 0.004, "epochs": 400, "factor": 0.25, "scale": 32.0}
_STEPS = {"schedule": "milestones", "milestones": (50, 100, 150, 200, 250, 300)}
_COSINE = {"lr": 0.1, "schedule": "cosine", "warmup": 0.0}
_CIFAR = {**_COSINE, "epochs": 600, "batch": 256, "scale": 16.0}
_MINI = {**_COSINE, "epochs": 1000, "batch": 128, "scale": 32.0}
PUBLISHED = {
    "cifar100": Published("resnet20", _CIFAR, head={"alpha": 0.1, "tau": 16.0}),
    "mini_imagenet": Published("resnet18", _MINI, head={"alpha": 0.5, "tau": 16.0}),
    "cub200": Published("resnet18", _BIRDS | _STEPS, head={"alpha": 0.5, "tau": 16.0}),
}


def calibrated(means: Array, anchors: Array, alpha: float, tau: float) -> Array:
    """(1 − α)·p̂ + α·δ, δ = normalise(Σ_b w_b b̂), w = softmax_b(τ·cos(p̂, b̂)).

    means : (m, d) of the shots, of any length; anchors : (B, d) base prototypes b̂, unit vectors
    -> (m, d), shorter than unit length where p̂ and δ differ

    >>> calibrated(np.array([[3.0, 0.0]]), np.eye(2)[1:], alpha=0.5, tau=16.0)
    array([[0.5, 0.5]])
    """
    from scipy.special import softmax

    unit = normalise(means)
    weights = softmax(tau * unit @ anchors.T, axis=1)
    return (1 - alpha) * unit + alpha * normalise(weights @ anchors)


class Teen(NearestMean):
    """Logits s·cos(f(x), p_c); p_c of a novel class is calibrated, of a base class its mean.

    A class is calibrated when its shots arrive and when more are folded in; nothing else moves
    it. The base prototypes it leans towards are those of `fit_base`, whatever base classes have
    since learned or whether they were forgotten, so the order of sessions does not matter.

    `prototypes` are the calibrated ones: images are compared with them, so similarity to base
    (Eq. 6) is that of the classifier's own weights, in pseudo sessions and afterwards alike.

    alpha : how far to lean, 0 (nearest mean) to 1; `PUBLISHED` has the authors' choices, and what
        was measured is in docs/method-measurements.md
    tau : how sharply similar base classes are preferred
    """

    name = "teen"
    saved_arrays = ("_anchors",)
    keeps_weights = True  # calibrating all classes at once rounds differently than one by one

    def __init__(
        self, *, alpha: float = 0.1, tau: float = 16.0, **common: Unpack[ScaledOptions]
    ) -> None:
        super().__init__(**common)
        self.alpha, self.tau = check_number("alpha", alpha, 0, 1), check_number("tau", tau)
        self.config.update(alpha=self.alpha, tau=self.tau)
        self._anchors = np.zeros((0, 0))  # (B, d) unit base prototypes

    def prototypes_at(self, columns: Array) -> Array:
        means = super().prototypes_at(columns)
        novel = columns >= self.n_base
        if novel.any():
            means[novel] = self._calibrated(means[novel])
        return means

    def new_prototype(self, unit: Array) -> Array:
        return self._calibrated(super().new_prototype(unit))

    def _calibrated(self, means: Array) -> Array:
        return calibrated(means, self._anchors, self.alpha, self.tau)

    def _without_own(self, cosines: Array, unit: Array, members: Array) -> Array:
        novel = members >= self.n_base
        result = super()._without_own(cosines, unit, np.where(novel, -1, members))
        rows = np.flatnonzero(novel)
        own, mine = members[rows], unit[rows]
        rest, alone = self._rest(mine, own)
        weights = normalise(self._calibrated(rest.astype(unit.dtype)))
        result[rows, own] = np.where(alone, 0.0, np.einsum("nd,nd->n", mine, weights))
        return result

    def _fit_table(self, data: BaseData, rows: Array | None = None) -> None:
        super()._fit_table(data, rows)
        self._anchors = normalise(self.prototypes)
