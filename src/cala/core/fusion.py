"""Class fusion of ALICE: mixed images of two classes are a class of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from cala.core.mixing import LAMBDA_RANGE, mix

ROUNDS = 4
CONCENTRATION = 20.0


def n_fused(n_base: int) -> int:
    """B(B−1)/2 classes: one for each pair."""
    return n_base * (n_base - 1) // 2


def fused_label(first: Tensor, second: Tensor, n_base: int) -> Tensor:
    """The label of a pair of different classes, in any order: B, B+1, …

    >>> one, two = torch.tensor([0, 2, 1]), torch.tensor([1, 0, 2])
    >>> fused_label(one, two, 3)
    tensor([3, 4, 5])
    """
    a, b = torch.minimum(first, second), torch.maximum(first, second)
    return n_base + (2 * n_base - a - 1) * a // 2 + (b - a) - 1


def fuse(
    images: Tensor, labels: Tensor, n_base: int, rounds: int = ROUNDS
) -> tuple[Tensor, Tensor]:
    """A batch and what it gives mixed with itself: (n, …), (n,) -> (m, …), (m,).

    In each round every image meets one other; those of another class are mixed, with λ from
    Beta(20, 20), or 0.5 where that lies outside 0.4 to 0.6.
    """
    order = torch.stack([torch.randperm(len(labels)) for _ in range(rounds)]).to(labels.device)
    first = torch.arange(len(labels), device=labels.device).repeat(rounds)
    second = order.flatten()
    differ = labels[first] != labels[second]
    first, second = first[differ], second[differ]
    lam = torch.distributions.Beta(CONCENTRATION, CONCENTRATION).sample((len(first),))
    low, high = LAMBDA_RANGE
    lam = torch.where((lam < low) | (lam > high), 0.5, lam).to(images)
    lam = lam.reshape(-1, *[1] * (images.dim() - 1))
    mixed = mix(images[first], images[second], lam)
    fused = fused_label(labels[first], labels[second], n_base)
    return torch.cat([images, mixed]), torch.cat([labels, fused])
