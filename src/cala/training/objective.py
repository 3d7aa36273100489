"""What base training minimises; cross-entropy over a cosine classifier, unless a method differs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cala.training.recipes import Recipe


class Objective(nn.Module, ABC):
    """An encoder, whatever is trained with it, and the loss of a batch.

    What is random in `forward` comes from torch's own generator, which the loop seeds before every
    step; `rows` draws from the generator that it is given.

    n_base, n_classes : number of base classes, and of all classes of the data set
    dim : dimensions of an embedding
    loss : numbers of the loss, for `build`
    """

    #: Augmented views of each image that a step sees.
    views: ClassVar[int] = 1
    #: Whether a batch may be shared by several devices.
    divisible: ClassVar[bool] = True
    #: Share of the steps in which a trained encoder waits while what is new beside it learns.
    waits: ClassVar[float] = 0.0
    #: Whether `begin` is to be called with the class means at the start.
    wants_means: ClassVar[bool] = False

    encoder: nn.Module

    def __init__(
        self, encoder: nn.Module, n_base: int, recipe: Recipe, n_classes: int, **loss: Any
    ) -> None:
        super().__init__()
        self.encoder, self.n_base, self.recipe, self.n_classes = encoder, n_base, recipe, n_classes
        self.dim = int(encoder.dim)  # type: ignore[arg-type]
        self.build(**loss)

    def build(self) -> None:
        """Make what is trained beside the encoder; an objective's own numbers come by name."""

    def rows(self, shuffled: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Which training rows a step takes: (m,).

        shuffled : (batch,) the next rows of a random order; labels : (n,) of all training rows
        """
        return shuffled

    @abstractmethod
    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Loss, and logits (m, C) of the first m images for the accuracy that is shown.

        images : (views · n, 3, h, w), all images once per view; labels : (n,)
        """

    @abstractmethod
    def logits(self, images: Tensor) -> Tensor:
        """Over the base classes, for validation: (n, 3, h, w) -> (n, B)."""

    def reached(self, share: float) -> None:
        """Called before every step with the share of all steps that are done."""

    def begin(self, means: Tensor) -> None:
        """Start from the unit class means (B, d) of the encoder at hand."""

    @property
    def scale(self) -> float | None:
        """The scale s of its logits s·cos(f, p); None where they are none of these."""
        return None

    def parts(self) -> dict[str, Tensor]:
        """What the method's head needs beside the encoder."""
        return {}

    def groups(self, recipe: Recipe) -> list[dict[str, Any]]:
        """Parameter groups; weight decay for all but a learned scale.

        A group may have a `factor`, which multiplies the learning rate.
        """
        learned = [p for p in self.parameters() if p.requires_grad]
        return [
            {"params": [p for p in learned if p.dim()], "weight_decay": recipe.weight_decay},
            {"params": [p for p in learned if not p.dim()], "weight_decay": 0.0},
        ]


#: A class of objectives; numbers of its loss are given by name.
MakeObjective = Callable[..., Objective]


class CosineClassifier(nn.Module):
    """Logits s·cos(f, w_c); s is learned."""

    def __init__(self, dim: int, n_classes: int, scale: float = 16.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_classes, dim) * math.sqrt(2 / dim))
        self.scale = nn.Parameter(torch.tensor(float(scale)))

    def forward(self, features: Tensor) -> Tensor:
        """(n, d) -> (n, C)"""
        cosines = F.normalize(features.float(), dim=1) @ F.normalize(self.weight, dim=1).T
        return self.scale * cosines


class BaseModel(Objective):
    """Cross-entropy over a cosine classifier with a learned scale."""

    def build(self) -> None:
        self.classifier = CosineClassifier(self.dim, self.n_base, self.recipe.scale)
        self.smoothing = self.recipe.smoothing

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.logits(images)
        return self.cross_entropy(logits, labels), logits

    def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), labels, label_smoothing=self.smoothing)

    def logits(self, images: Tensor) -> Tensor:
        return self.classifier(self.encoder(images))

    def begin(self, means: Tensor) -> None:
        with torch.no_grad():
            self.classifier.weight.copy_(means)

    @property
    def scale(self) -> float:
        return float(self.classifier.scale.detach())
