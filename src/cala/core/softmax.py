"""A softmax classifier over frozen embeddings that learns new classes and keeps old answers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

TEMPERATURE = 2.0


def distilled_rows(
    rows: Tensor,
    old: int,
    shots: Tensor,
    columns: Tensor,
    anchors: Tensor,
    *,
    scale: float,
    steps: int,
    lr: float,
    momentum: float = 0.9,
) -> Tensor:
    """Rows (C, d) of s·f·wᵀ after some steps of cross-entropy on shots and distillation on anchors.

    old : the first so many rows were there before, and their answers for anchors are kept
    shots, columns : (n, d), (n,) all shots of the session at once; anchors : (m, d)

    Gradients are written out: a session has a hundred steps on few rows, where the bookkeeping of
    automatic differentiation would take most of the time.
    """
    teacher = (scale / TEMPERATURE * anchors @ rows[:old].T).softmax(1)
    wanted = F.one_hot(columns, len(rows)).to(rows.dtype)
    rows, velocity = rows.clone(), torch.zeros_like(rows)
    for _ in range(steps):
        error = (scale * shots @ rows.T).softmax(1) - wanted
        gradient = scale / len(shots) * error.T @ shots
        if len(anchors):
            kept = (scale / TEMPERATURE * anchors @ rows[:old].T).softmax(1) - teacher
            gradient[:old] += scale / TEMPERATURE / len(anchors) * kept.T @ anchors
        velocity = momentum * velocity + gradient
        rows = rows - lr * (gradient + momentum * velocity)
    return rows
