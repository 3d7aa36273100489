"""ALICE (Peng et al., ECCV 2022): an angular penalty and class fusion; prototypes of few images.

Base training sees two views of each image, and mixed images of two classes are a class of their
own. The projector is dropped afterwards; sessions work on the encoder's own embeddings.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cala.core.cala import mix, normalise
from cala.core.fakes import LAMBDA_RANGE
from cala.core.rows import Array
from cala.errors import InputError
from cala.heads.base import Traits
from cala.systems.common.exemplar_mean import ExemplarMean
from cala.systems.published import Published, base_session
from cala.systems.registry import System
from cala.training.objective import Objective

BALANCED = 5
SCALE, MARGIN = 30.0, 0.4
_ROUNDS = 4
CONCENTRATION = 20.0
MOST_FUSED = 50_000
WIDER = 4  # dimensions of the projector, as a multiple of the embedding's


class Alice(ExemplarMean):
    """Nearest mean with balanced testing: a base prototype is the mean of the five images
    nearest to its class mean, so that base and novel classes rest on equally many.

    Its own base session is that of `cala train --method alice`; any other encoder will do too.
    """

    name = "alice"
    # Its base session has made a class of every pair of classes, from images mixed in this way.
    traits: ClassVar[Traits] = ExemplarMean.traits._replace(mixed_images_are_new=False)

    def _pick(self, unit: Array) -> Array:
        nearness = unit @ normalise(unit.mean(0))
        return np.argsort(-nearness, kind="stable")[:BALANCED]


# The base session.


def cosface_logits(
    cosines: Tensor, labels: Tensor, scale: float = SCALE, margin: float = MARGIN
) -> Tensor:
    """s·(cos − m) for the true class, s·cos for all others: (n, C), (n,) -> (n, C).

    >>> cosface_logits(torch.tensor([[0.5, 0.25]]), torch.tensor([0]), scale=10, margin=0.25)
    tensor([[2.5000, 2.5000]])
    """
    penalty = torch.full_like(labels[:, None], -margin, dtype=cosines.dtype)
    return scale * cosines.scatter_add(1, labels[:, None], penalty)


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


def fuse(images: Tensor, labels: Tensor, n_base: int) -> tuple[Tensor, Tensor]:
    """A batch and what it gives mixed with itself: (n, …), (n,) -> (m, …), (m,).

    In each round every image meets one other; those of another class are mixed, with λ from
    Beta(20, 20), or 0.5 if that is outside 0.4 to 0.6.
    """
    order = torch.stack([torch.randperm(len(labels)) for _ in range(_ROUNDS)]).to(labels.device)
    first = torch.arange(len(labels), device=labels.device).repeat(_ROUNDS)
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


class AngularFusion(Objective):
    """CosFace on projected embeddings, over base classes and a class for each pair of them.

    fusion : whether pairs of classes are classes at all
    """

    views: ClassVar[int] = 2
    waits: ClassVar[float] = 0.3  # a random projector would undo what a trained encoder knows

    def build(self, fusion: bool = True) -> None:
        n_base = self.n_base
        self.fusion, wide = fusion, WIDER * self.dim
        pairs = n_fused(n_base) if fusion else 0
        if pairs > MOST_FUSED:
            detail = f"alice adds a class for each pair of {n_base:,} base classes: {pairs:,}"
            fix = f"use fewer base classes, so that there are at most {MOST_FUSED:,} pairs"
            raise InputError(detail, fix, field="base", code="too_many_pairs")
        self.projector = nn.Sequential(
            nn.Linear(self.dim, wide, bias=False),
            nn.BatchNorm1d(wide),
            nn.ReLU(inplace=True),
            nn.Linear(wide, wide, bias=False),
            nn.BatchNorm1d(wide, affine=False),
        )
        self.weight = nn.Parameter(torch.randn(n_base + pairs, wide))

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        views = [
            fuse(view, labels, self.n_base) if self.fusion else (view, labels)
            for view in images.chunk(self.views)
        ]
        targets = torch.cat([own for _, own in views])
        cosines = self._cosines(torch.cat([view for view, _ in views]))
        # Each view counts the same, however many of its images met one of another class.
        sizes = torch.cat([torch.full((len(own),), 1 / len(own)) for _, own in views])
        each = F.cross_entropy(cosface_logits(cosines, targets), targets, reduction="none")
        loss = (each * sizes.to(each)).sum() / len(views)
        return loss, cosines[: len(labels), : self.n_base]

    def _cosines(self, images: Tensor) -> Tensor:
        projected = self.projector(self.encoder(images)).float()
        return (F.normalize(projected, dim=1) @ F.normalize(self.weight, dim=1).T).float()

    def logits(self, images: Tensor) -> Tensor:
        return SCALE * self._cosines(images)[:, : self.n_base]


_VIEWS = {
    "augment": "resized-crop",
    "area": (0.2, 1.0),
    "jitter": 0.4,
    "jittered": 0.8,
    "grey": 0.2,
}
_BASE = base_session(128, 0.01, 100, (60, 70), **_VIEWS)
PUBLISHED = {
    "cifar100": Published("resnet18-small", _BASE, loss={"fusion": True}),
    "mini_imagenet": Published(
        "resnet18-small", {**_BASE, "batch": 64, "epochs": 200}, loss={"fusion": True}
    ),
    "cub200": Published("resnet18", {**_BASE, "batch": 512, "lr": 0.001}, loss={"fusion": False}),
}
SYSTEM = System(AngularFusion, changes={**_BASE, "batch": 64})
