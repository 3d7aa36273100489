"""Small problems that tests share."""

from __future__ import annotations

import numpy as np

VERTICES = "nc.vertices"  # of nc-fscil


def blobs(n_classes: int, per_class: int, dim: int, seed: int = 0, spread: float = 0.6):
    """Embeddings of well-separated but overlapping classes: features (n, d), labels (n,)."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_classes, dim))
    labels = np.repeat(np.arange(n_classes), per_class)
    return centres[labels] + spread * rng.normal(size=(len(labels), dim)), labels


def digits():
    """The 1,797 scanned digits of 8×8 pixels that come with scikit-learn: (n, 64), (n,)."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return found.data, found.target


def first_of(labels, wanted, count):
    """The first `count` rows of each wanted label: row numbers, label after label."""
    return np.concatenate([np.flatnonzero(labels == label)[:count] for label in wanted])


def random_parts(method: str, dim: int) -> dict[str, np.ndarray]:
    """What a head needs that was trained with the encoder: here it was not trained at all."""
    from cala.heads import HEADS
    from cala.heads.factory import split_name

    host = HEADS[split_name(method)[0]]
    shapes = host.part_shapes(dim) if hasattr(host, "part_shapes") else {}
    rng = np.random.default_rng(0)
    found = {}
    free = 24 if VERTICES in shapes else 4
    for name, shape in shapes.items():
        values = 0.1 * rng.normal(size=[n or free for n in shape]).astype(np.float32)
        gain = len(shape) == 1 and name.endswith("weight")  # of a layer norm
        found[name] = 1 + values if gain else values
    if VERTICES in found:  # a simplex, or there is nothing to turn to
        found[VERTICES] = simplex(free, rng)
    return found


def simplex(n: int, rng: np.random.Generator) -> np.ndarray:
    """n unit vectors with equal angles between them: (n, n) float32."""
    basis = np.linalg.qr(rng.normal(size=(n, n)))[0]
    rows = np.ascontiguousarray((basis - basis.mean(1, keepdims=True)).T, np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
