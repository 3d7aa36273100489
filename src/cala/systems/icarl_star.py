"""iCaRL as few-shot papers use it: frozen embeddings, cross-entropy, distillation on anchors."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from typing_extensions import Unpack

from cala.core._memory import AppendOnly
from cala.core.cala import cosine_logits, normalise
from cala.core.calibration import leave_one_out
from cala.core.rows import Array
from cala.heads.base import Traits
from cala.heads.base_data import BaseData
from cala.heads.checks import check_number
from cala.heads.nearest_mean import ClassMeans
from cala.heads.table import ScaledOptions
from cala.systems.common.neural_gas import fit_gas
from cala.systems.published import BENCHMARKS, Published

ANCHORS = 400
PER_CLASS = 100  # base rows of each class that the neural gas learns from
TEMPERATURE = 2.0
PUBLISHED = dict.fromkeys(
    BENCHMARKS,
    Published(
        missing="a rate of 0.1 (0.01 on CUB-200) is published for embeddings of another scale, and "
        "nothing else of these sessions; rate and steps were chosen on dev queries"
    ),
)


def distilled_rows(
    rows: Array,
    old: int,
    shots: Array,
    columns: Array,
    anchors: Array,
    *,
    scale: float,
    steps: int,
    lr: float,
    momentum: float = 0.9,
) -> Array:
    """Rows (C, d) of s·f·wᵀ after some steps of cross-entropy on shots and distillation on anchors.

    old : number of rows that were there before; their answers for anchors are kept
    shots, columns : (n, d), (n,) all shots of the session at once; anchors : (m, d)
    """
    from scipy.special import softmax

    softer = scale / TEMPERATURE
    teacher = softmax(softer * anchors @ rows[:old].T, axis=1)
    places = np.arange(len(shots))
    velocity = np.zeros_like(rows)
    for _ in range(steps):
        error = softmax(scale * shots @ rows.T, axis=1)
        error[places, columns] -= 1
        gradient = scale / len(shots) * error.T @ shots
        if len(anchors):
            kept = softmax(softer * anchors @ rows[:old].T, axis=1) - teacher
            gradient[:old] += softer / len(anchors) * kept.T @ anchors
        velocity = momentum * velocity + gradient
        rows = rows - lr * (gradient + momentum * velocity)
    return rows


class IcarlStar(ClassMeans):
    """Logits s·f(x)·w_c: rows start as class means, and every session tunes them all.

    A session's loss is the cross-entropy of its shots and the distillation of the old rows'
    answers on anchors: base images that a neural gas chose, and the means of earlier novel
    classes. What it learns depends on which shots came together.

    steps, lr : of a session
    """

    name = "icarl-star"
    traits: ClassVar[Traits] = ClassMeans.traits._replace(
        old_columns_stay=False, metrics=("cosine",)
    )

    saved_arrays = ("_anchors",)
    keeps_weights = True

    def __init__(
        self,
        *,
        steps: int = 30,
        lr: float = 0.003,
        seed: int = 0,
        **common: Unpack[ScaledOptions],
    ) -> None:
        super().__init__(**common)
        self.steps = int(check_number("steps", steps, whole=True))
        self.lr, self.seed = check_number("lr", lr, 0, 10, above=True), seed
        self.config.update(steps=self.steps, lr=self.lr, seed=seed)
        self._anchors = np.zeros((0, 0))  # (m, d) unit vectors

    def _without_own(self, cosines: Array, unit: Array, members: Array) -> Array:
        # A row is worth to its class what it is worth to the class mean.
        plain = cosine_logits(unit, normalise(self.prototypes))
        return cosines + leave_one_out(plain, self.table, members) - plain

    def _fit_base(self, data: BaseData) -> None:
        super()._fit_base(data)
        rng = np.random.default_rng(self.seed)
        some = data.rows.draw(PER_CLASS, rng)
        unit = self.embed(data.features[some.order])
        self._anchors = unit[fit_gas(unit, some.columns, ANCHORS, rng).anchors]

    def _add(self, unit: Array, columns: Array) -> None:
        old = len(self._weights)
        novel = normalise(self.prototypes_at(np.arange(self.n_base, old)))
        super()._add(unit, columns)
        # More shots of a known class put its mean in the place of what tuning had made of it.
        tuned = distilled_rows(
            self._weights,
            old,
            unit,
            columns,
            np.concatenate([self._anchors, novel]),
            scale=self.scale,
            steps=self.steps,
            lr=self.lr / self.scale,
        )
        self._rows = AppendOnly(tuned)
