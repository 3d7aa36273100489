"""ALICE (Peng et al., ECCV 2022): an angular penalty, class fusion and two views of each image.

The projector is dropped after training; sessions work on the encoder's own embeddings.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from cala.core.angular import SCALE, cosface_logits
from cala.core.fusion import fuse, n_fused
from cala.errors import InputError
from cala.methods.registry import METHODS, Method
from cala.training.objective import Objective
from cala.training.recipes import Recipe

MOST_FUSED = 50_000
WIDER = 4  # the projector has so many times the embedding's dimensions


class AngularFusion(Objective):
    """CosFace on projected embeddings, over base classes and a class for each pair of them."""

    views: ClassVar[int] = 2
    waits: ClassVar[float] = 0.3  # a random projector would undo what a trained encoder knows

    def __init__(self, encoder: nn.Module, n_base: int) -> None:
        super().__init__()
        dim = int(encoder.dim)  # type: ignore[arg-type]
        wide = WIDER * dim
        if n_fused(n_base) > MOST_FUSED:
            raise InputError(
                f"alice makes a class of every pair of {n_base:,} base classes, "
                f"{n_fused(n_base):,} of them, and allows {MOST_FUSED:,}: use fewer base classes "
                "or another method"
            )
        self.encoder, self.n_base = encoder, n_base
        self.projector = nn.Sequential(
            nn.Linear(dim, wide, bias=False),
            nn.BatchNorm1d(wide),
            nn.ReLU(inplace=True),
            nn.Linear(wide, wide, bias=False),
            nn.BatchNorm1d(wide, affine=False),
        )
        self.weight = nn.Parameter(torch.randn(n_base + n_fused(n_base), wide))

    @classmethod
    def make(cls, encoder: nn.Module, n_base: int, recipe: Recipe, n_classes: int) -> Self:
        return cls(encoder, n_base)

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        views = [fuse(view, labels, self.n_base) for view in images.chunk(self.views)]
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


METHODS.register("alice", "angular penalty with class fusion; base prototypes of 5 images each")(
    Method(
        AngularFusion.make,
        {
            "batch": 64,
            "lr": 0.01,
            "epochs": 100,
            "schedule": "milestones",
            "milestones": (60, 70),
            "augment": "resized-crop",
            "area": (0.2, 1.0),
            "jitter": 0.4,
            "jittered": 0.8,
            "grey": 0.2,
            "sizes": (),
        },
    )
)
