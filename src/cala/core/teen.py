"""TEEN: move a few-shot prototype towards the base prototypes that it resembles."""

from __future__ import annotations

from torch import Tensor

from cala.core.prototypes import normalise


def calibrated(means: Tensor, anchors: Tensor, alpha: float, tau: float) -> Tensor:
    """(1 − α)·p̂ + α·δ, δ = normalise(Σ_b w_b b̂), w = softmax_b(τ·cos(p̂, b̂)).

    means : (m, d) of the shots, of any length; anchors : (B, d) base prototypes b̂, unit vectors
    -> (m, d), shorter than unit length where p̂ and δ differ

    >>> import torch
    >>> calibrated(torch.tensor([[3.0, 0.0]]), torch.eye(2)[1:], alpha=0.5, tau=16.0)
    tensor([[0.5000, 0.5000]])
    """
    unit = normalise(means)
    weights = (tau * unit @ anchors.T).softmax(1)
    return (1 - alpha) * unit + alpha * normalise(weights @ anchors)
