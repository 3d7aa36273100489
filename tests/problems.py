"""Small problems that tests share."""

from __future__ import annotations

import numpy as np
import torch


def blobs(n_classes: int, per_class: int, dim: int, seed: int = 0, spread: float = 0.6):
    """Embeddings of well-separated but overlapping classes: features (n, d), labels (n,)."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_classes, dim))
    labels = np.repeat(np.arange(n_classes), per_class)
    features = centres[labels] + spread * rng.normal(size=(len(labels), dim))
    return torch.tensor(features), torch.tensor(labels)
