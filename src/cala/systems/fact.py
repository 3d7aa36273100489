"""FACT (Zhou et al., CVPR 2022): virtual prototypes keep room for classes to come.

They never belong to anyone: base training draws second-best and mixed images to them, and at
inference they have a say in what an image is.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cala.core.cala import mix, normalise
from cala.core.rows import Array
from cala.errors import InputError
from cala.systems.common.with_parts import HeadWithParts
from cala.systems.published import Published, base_session
from cala.systems.registry import System
from cala.training.objective import BaseModel

ETA = 0.1
_NEAREST = 40
GUESTS = 3
NOTHING = -1e9
BALANCE = 1e-3
ALPHA = 0.5


# Inference.


def nearest_virtual(unit: Array, virtual: Array, nearest: int = _NEAREST) -> Array:
    """Cosines of unit vectors (n, d) to the nearest of (V, d); 0 for all others: (n, V)."""
    cosines = unit @ virtual.T
    if nearest < len(virtual):
        others = np.argpartition(cosines, -nearest, axis=1)[:, :-nearest]
        np.put_along_axis(cosines, others, 0, axis=1)
    return cosines


def through_virtual(near: Array, virtual: Array, weights: Array) -> Array:
    """ℓ₁: classes by way of the virtual prototypes near to an image: (n, V) -> (n, C).

    near : of `nearest_virtual`
    virtual : (V, d), weights : (C, d), all of them unit vectors, each prototype by itself
    """
    return near @ (virtual @ weights.T)


def fused_logits(through: Array, direct: Array, eta: float = ETA) -> Array:
    """Logits whose softmax is η·softmax(ℓ₁) + (1−η)·softmax(ℓ), of (n, C) each.

    Every row is as large as ℓ is, so that η = 0 gives ℓ itself, and how well an image fits at all
    can still be seen.
    """
    from scipy.special import logsumexp

    if not eta:
        return direct.copy()
    totals = (logsumexp(logits, axis=1, keepdims=True) for logits in (direct, through))
    level = next(totals) - next(totals)
    return np.logaddexp(through + level + math.log(eta), direct + math.log1p(-eta))


class Fact(HeadWithParts):
    """The softmax of its logits is η·softmax(ℓ₁) + (1−η)·softmax(s·cos).

    ℓ₁ goes by way of the virtual prototypes; η is 0.1.
    """

    name = "fact"

    _virtual: Array  # (V, d)

    @classmethod
    def part_shapes(cls, dim: int) -> dict[str, tuple[int | None, ...]]:
        return {"virtual": (None, dim)}

    def _take_parts(self) -> None:
        self._virtual = normalise(self.parts["virtual"].astype(self.dtype))

    def unit_logits(self, unit: Array, members: Array | None = None) -> Array:
        cosines = self._scores(unit, members)
        near = nearest_virtual(unit, self._virtual)
        through = through_virtual(near, self._virtual, self._weights)
        if members is not None:
            rows = np.flatnonzero(members >= 0)
            own = members[rows]
            rest = normalise((self.table.sums[own] - unit[rows]).astype(unit.dtype))
            left = np.einsum("nd,nd->n", near[rows] @ self._virtual, rest)
            through[rows, own] = np.where(self.table.counts[own] > 1, left, 0.0)
        return fused_logits(through, self._scaled(cosines))


# The base session.


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


class ForwardCompatible(BaseModel):
    """Cross-entropy, and three losses by which images make room for virtual prototypes.

    One pass through the encoder's lower half serves plain and mixed images.

    balance : weight of the three losses
    alpha : λ of mixed images comes from Beta(α, α)
    after : share of the training after which they join
    """

    wants_means: ClassVar[bool] = True

    virtual: Tensor  # (V, d)
    guests: Tensor  # (B, V) bool

    def build(self, balance: float = BALANCE, alpha: float = ALPHA, after: float = 0.0) -> None:
        super().build()
        n_base = self.n_base
        self.balance, self.alpha, self.after = balance, alpha, after
        self.joined = True
        if not hasattr(self.encoder, "lower"):
            detail = f"fact mixes images inside the encoder; {self.recipe.encoder} has no halves"
            fix = "use an architecture with the methods `lower` and `upper`, such as resnet18"
            raise InputError(detail, fix, field="encoder", code="no_halves")
        count = max(1, round(2 * n_base / 3))
        self.register_buffer("virtual", virtual_prototypes(n_base, count, self.dim))
        self.register_buffer("guests", draw_guests(n_base, count))

    def reached(self, share: float) -> None:
        self.joined = share >= self.after

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = self.encoder.lower, self.encoder.upper
        hidden = lower(images)  # type: ignore[operator]
        logits = self._all(upper(hidden))  # type: ignore[operator]
        loss = self.cross_entropy(logits[:, : self.n_base], labels)
        if not self.joined:
            return loss, logits[:, : self.n_base]
        masked, virtual = second_best(logits, labels, self.guests)
        extra = F.cross_entropy(masked, virtual)

        order = torch.randperm(len(labels)).to(labels.device)
        differ = labels != labels[order]
        if bool(differ.any()):
            lam = float(torch.distributions.Beta(self.alpha, self.alpha).sample())
            mixed = self._all(upper(mix(hidden, hidden[order], lam)[differ]))  # type: ignore[operator]
            virtual, masked, known = mixed_targets(mixed, self.n_base)
            extra = extra + F.cross_entropy(mixed, virtual) + F.cross_entropy(masked, known)
        return loss + self.balance * extra, logits[:, : self.n_base]

    def _all(self, features: Tensor) -> Tensor:
        """Logits over base and virtual classes: (n, d) -> (n, B + V)."""
        unit = F.normalize(features.float(), dim=1)
        rows = torch.cat([F.normalize(self.classifier.weight, dim=1), self.virtual])
        return self.classifier.scale * (unit @ rows.T).float()

    def parts(self) -> dict[str, Tensor]:
        return {"virtual": self.virtual}


_BASE = base_session(256, 0.1, 600)
_MINI = base_session(128, 0.1, 1000)
_BIRDS = base_session(256, 0.005, 400, (50, 100, 150, 200, 250, 300), factor=0.25, warmup=0.0)
PUBLISHED = {
    "cifar100": Published(
        "resnet20", _BASE, loss={"balance": BALANCE, "alpha": ALPHA, "after": 0.0}
    ),
    "mini_imagenet": Published(
        "resnet18", _MINI, loss={"balance": 0.01, "alpha": ALPHA, "after": 150 / 1000}
    ),
    "cub200": Published(
        "resnet18",
        _BIRDS,
        loss={"balance": 0.01, "alpha": 2.0, "after": 0.0},
        missing="from which epoch the three losses join; here from the first",
    ),
}
SYSTEM = System(ForwardCompatible, changes={**_BASE, "batch": 128})
