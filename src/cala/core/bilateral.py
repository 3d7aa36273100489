"""BiDist's two small networks: how much of each teacher, and how much of each branch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

HIDDEN = 64


class TeacherShare(nn.Module):
    """c = sigmoid(MLP(similarities to the base prototypes)): how far a novel class is taught by the
    base branch rather than by the last session's."""

    def __init__(self, n_base: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_base, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2))

    def forward(self, similarities: Tensor) -> Tensor:
        """(n, B) -> (n,)"""
        return torch.sigmoid(self.layers(similarities)[:, 0])


class BranchAttention(nn.Module):
    """Weights of the two branches from what both answer: softmax(MLP([p_base, p_now]))."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        layers = (nn.Linear(2 * n_classes, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2))
        self.layers = nn.Sequential(*layers)

    def forward(self, base: Tensor, now: Tensor) -> Tensor:
        """Logits (n, C) of both branches -> (n, 2), before the softmax."""
        return self.layers(torch.cat([base.softmax(1), now.softmax(1)], dim=1))

    @staticmethod
    def aggregated(weights: Tensor, base: Tensor, now: Tensor) -> Tensor:
        """a₀·base + a₁·now: (n, C)"""
        share = weights.softmax(1)
        return share[:, :1] * base + share[:, 1:] * now
