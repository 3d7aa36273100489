"""A small embeddings file, whole or with one member changed."""

from __future__ import annotations

import numpy as np


def arrays(**changes):
    rng = np.random.default_rng(0)
    made = {
        "x_train": rng.normal(size=(40, 3)).astype(np.float16),
        "y_train": np.repeat(np.arange(4), 10).astype(np.uint8),
        "x_test": rng.normal(size=(8, 3)).astype(np.float16),
        "y_test": np.repeat(np.arange(4), 2).astype(np.uint8),
        "fake": rng.normal(size=(5, 6, 3)).astype(np.float16),
        "pairs": np.array([[0, 1], [0, 2], [1, 2], [0, 3], [1, 3]], dtype=np.uint8),
        "scale": np.float32(16),
    }
    made.update(changes)
    return {k: v for k, v in made.items() if v is not None}


def write(tmp_path, **changes):
    path = tmp_path / "odd näme 🐦.npz"
    np.savez(path, **arrays(**changes))
    return path
