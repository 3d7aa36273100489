"""NC-FSCIL (Yang et al., ICLR 2023): every class, also those to come, has its place beforehand."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from cala.core.blending import blend
from cala.core.etf import dot_regression, simplex_etf
from cala.core.logits import DEFAULT_SCALE
from cala.core.neck import NAME, VERTICES, Neck, neck_width
from cala.methods.registry import METHODS, Method
from cala.training.objective import Objective
from cala.training.recipes import Recipe


class FixedVertices(Objective):
    """Encoder and neck turn each image towards its class's vertex of a simplex that never moves.

    A blended image goes to the vertices of both its parents, to each by its share.
    """

    waits: ClassVar[float] = 0.2  # a random neck would undo what a trained encoder knows

    vertices: Tensor  # (C, w), the base classes first

    def __init__(self, encoder: nn.Module, n_base: int, n_classes: int) -> None:
        super().__init__()
        self.encoder, self.n_base = encoder, n_base
        width = neck_width(n_classes)
        self.neck = Neck(int(encoder.dim), width)  # type: ignore[arg-type]
        self.register_buffer("vertices", simplex_etf(n_classes, width))

    @classmethod
    def make(cls, encoder: nn.Module, n_base: int, recipe: Recipe, n_classes: int) -> Self:
        """Where no class is to come that is known by now, as many places again are kept."""
        return cls(encoder, n_base, n_classes if n_classes > n_base else 2 * n_base)

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        blended = blend(images)
        outputs = self._outputs(blended.images)
        loss = blended.share * dot_regression(outputs, self.vertices[labels])
        if blended.share < 1:
            others = self.vertices[labels[blended.other]]
            loss = loss + (1 - blended.share) * dot_regression(outputs, others)
        return loss.mean(), self._cosines(outputs).detach()

    def _outputs(self, images: Tensor) -> Tensor:
        return self.neck(F.normalize(self.encoder(images).float(), dim=1)).float()

    def _cosines(self, outputs: Tensor) -> Tensor:
        """To the base vertices: (n, w) -> (n, B)."""
        return (F.normalize(outputs, dim=1) @ self.vertices[: self.n_base].T).float()

    def logits(self, images: Tensor) -> Tensor:
        return DEFAULT_SCALE * self._cosines(self._outputs(images))

    def parts(self) -> dict[str, Tensor]:
        neck = {NAME + k: v for k, v in self.neck.state_dict().items()}
        return {**neck, VERTICES: self.vertices}


METHODS.register("nc-fscil", "a fixed simplex with a vertex for every class; only a neck learns")(
    Method(
        FixedVertices.make,
        {
            # Published: 0.25 for batches of 512. Short budgets on a processor need the steps, so
            # the batch is a quarter of it, and with it the rate.
            "batch": 128,
            "lr": 0.06,
            "epochs": 200,
            "schedule": "cosine",
            "warmup": 0.02,
            "jitter": 0.4,
            "sizes": (),
        },
    )
)
