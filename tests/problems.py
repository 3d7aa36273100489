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


def digits():
    """The 1,797 scanned digits of 8×8 pixels that come with scikit-learn: (n, 64), (n,)."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return torch.tensor(found.data), torch.tensor(found.target)


def random_parts(method: str, dim: int) -> dict[str, torch.Tensor]:
    """What a head needs that was trained with the encoder: here it was not trained at all."""
    from cala.core.etf import simplex_etf
    from cala.core.neck import VERTICES
    from cala.heads import HEADS
    from cala.heads.factory import split_name

    host = HEADS[split_name(method)[0]]
    shapes = host.part_shapes(dim) if host.needs_parts else {}
    generator = torch.Generator().manual_seed(0)
    found = {}
    free = 24 if VERTICES in shapes else 4
    for name, shape in shapes.items():
        values = 0.1 * torch.randn([n or free for n in shape], generator=generator)
        gain = len(shape) == 1 and name.endswith("weight")  # of a layer norm
        found[name] = 1 + values if gain else values
    if VERTICES in found:  # a simplex, or there is nothing to turn to
        found[VERTICES] = simplex_etf(free, free, generator)
    return found
