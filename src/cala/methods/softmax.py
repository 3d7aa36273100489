"""An ordinary softmax classifier: what iCaRL and TOPIC train their base session with."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from cala.core.softmax import BIAS, WEIGHT
from cala.training.objective import Objective
from cala.training.recipes import Recipe


class SoftmaxClassifier(Objective):
    """Cross-entropy over W f + b, on embeddings as the encoder gives them."""

    waits: ClassVar[float] = 0.1  # random rows would undo what a trained encoder knows

    def __init__(self, encoder: nn.Module, n_base: int) -> None:
        super().__init__()
        self.encoder, self.n_base = encoder, n_base
        self.classifier = nn.Linear(int(encoder.dim), n_base)  # type: ignore[arg-type]

    @classmethod
    def make(cls, encoder: nn.Module, n_base: int, recipe: Recipe, n_classes: int) -> Self:
        return cls(encoder, n_base)

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.logits(images)
        return F.cross_entropy(logits, labels), logits.detach()

    def logits(self, images: Tensor) -> Tensor:
        return self.classifier(self.encoder(images)).float()

    def parts(self) -> dict[str, Tensor]:
        return {
            WEIGHT: self.classifier.weight.detach(),
            BIAS: self.classifier.bias.detach(),
        }


#: The published schedule of iCaRL, 200 epochs.
CHANGES = {
    "batch": 128,
    "lr": 0.1,
    "epochs": 200,
    "schedule": "milestones",
    "milestones": (60, 120, 170),
    "sizes": (),
}
