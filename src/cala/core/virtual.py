"""FACT: room kept for classes to come, by virtual prototypes that never belong to anyone."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NOTHING = -1e9
GUESTS = 3
NEAREST = 40
ETA = 0.1


def virtual_prototypes(n_base: int, count: int, dim: int) -> Tensor:
    """`count` rows of an orthogonal matrix of B + count rows, as unit vectors: (V, d)."""
    rows = nn.init.orthogonal_(torch.empty(n_base + count, dim))
    return F.normalize(rows[n_base:], dim=1)


def draw_guests(n_base: int, count: int) -> Tensor:
    """Which virtual class may take over which base class's images: (B, V) bool.

    Each virtual class is open to three base classes; a base class that none is open to may go to
    any.
    """
    order = torch.rand(count, n_base).argsort(1)[:, : min(GUESTS, n_base)]
    allowed = torch.zeros(count, n_base, dtype=torch.bool).scatter_(1, order, True).T
    return allowed | ~allowed.any(1, keepdim=True)


def second_best(logits: Tensor, labels: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (n, B + V) without the true class, and the allowed virtual class they prefer (n,)."""
    n_base = len(allowed)
    masked = logits.scatter(1, labels[:, None], NOTHING)
    virtual = logits[:, n_base:].masked_fill(~allowed[labels], -torch.inf)
    return masked, n_base + virtual.argmax(1)


def mixed_targets(logits: Tensor, n_base: int) -> tuple[Tensor, Tensor, Tensor]:
    """For mixed images: the best virtual class (n,), logits without it, the best known class (n,).

    logits : (n, B + V)
    """
    virtual = n_base + logits[:, n_base:].argmax(1)
    masked = logits.scatter(1, virtual[:, None], NOTHING)
    return virtual, masked, logits[:, :n_base].argmax(1)


def through_virtual(
    unit: Tensor, virtual: Tensor, weights: Tensor, nearest: int = NEAREST
) -> Tensor:
    """ℓ₁: classes by way of the virtual prototypes nearest to an image: (n, d) -> (n, C).

    virtual : (V, d), weights : (C, d), all of them unit vectors, each prototype by itself
    """
    cosines = unit @ virtual.T
    if nearest < len(virtual):
        kept = cosines.topk(nearest, dim=1)
        cosines = torch.zeros_like(cosines).scatter(1, kept.indices, kept.values)
    return cosines @ (virtual @ weights.T)


def fused_logits(through: Tensor, direct: Tensor, eta: float = ETA) -> Tensor:
    """Logits whose softmax is η·softmax(ℓ₁) + (1−η)·softmax(ℓ), of (n, C) each.

    Every row is as large as ℓ is, so that η = 0 gives ℓ itself, and how well an image fits at all
    can still be seen.
    """
    parts = torch.stack([through.log_softmax(1), direct.log_softmax(1)])
    shares = torch.tensor([eta, 1 - eta], dtype=parts.dtype, device=parts.device).log()
    return torch.logsumexp(parts + shares[:, None, None], 0) + direct.logsumexp(1, keepdim=True)
