"""Objectives of base sessions: what they share, and the softmax classifier of iCaRL and TOPIC."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from cala.systems.published import base_session
from cala.training.objective import Objective
from cala.training.recipes import Recipe

START = 16.0  # scale of the cosines that rows start with where class means are known


class SystemObjective(Objective):
    """An objective that is made from the encoder, the number of base classes and its own options.

    loss : numbers of the loss, which `Published.loss` may name
    """

    @classmethod
    def make(
        cls, encoder: nn.Module, n_base: int, recipe: Recipe, n_classes: int, **loss: Any
    ) -> Self:
        return cls(encoder, n_base, **loss)


class SoftmaxClassifier(SystemObjective):
    """Cross-entropy over W f + b; f are unit embeddings times √d, as heads know them."""

    wants_means: ClassVar[bool] = True

    def __init__(self, encoder: nn.Module, n_base: int) -> None:
        super().__init__()
        self.dim = int(encoder.dim)  # type: ignore[arg-type]
        self.encoder, self.n_base = encoder, n_base
        self.classifier = nn.Linear(self.dim, n_base)

    def begin(self, means: Tensor) -> None:
        with torch.no_grad():
            self.classifier.weight.copy_(START / math.sqrt(self.dim) * means)
            self.classifier.bias.zero_()

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.logits(images)
        return F.cross_entropy(logits, labels), logits.detach()

    def logits(self, images: Tensor) -> Tensor:
        unit = F.normalize(self.encoder(images).float(), dim=1)
        return self.classifier(math.sqrt(self.dim) * unit).float()


#: The published schedule of iCaRL, 200 epochs.
CHANGES = base_session(128, 0.1, 200, (60, 120, 170))
