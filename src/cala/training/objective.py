"""What base training minimises: cross-entropy over a cosine classifier with a learned scale."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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


class BaseModel(nn.Module):
    """Encoder and classifier of the base session."""

    def __init__(self, encoder: nn.Module, classifier: CosineClassifier) -> None:
        super().__init__()
        self.encoder = encoder
        self.classifier = classifier

    def forward(self, images: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, C)"""
        return self.classifier(self.encoder(images))
