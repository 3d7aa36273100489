"""Scored episodes of random classes in which each class needs its own shift."""

from __future__ import annotations

import numpy as np

from cala.core.cala import ClassContext, Episode, Scores

N_BASE = 4


def episode(seed: int = 0, n_novel: int = 6) -> Episode:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(N_BASE + n_novel), 12)
    s = rng.uniform(0, 1, size=(n_novel, N_BASE))
    z = rng.normal(size=(len(y), N_BASE + n_novel))
    z[np.arange(len(y)), y] += 2
    z[:, N_BASE:] -= 3 * s.mean(1)
    context = ClassContext(s, rng.uniform(0.2, 0.8, n_novel), np.full(n_novel, 5.0))
    return Episode(context, Scores.of(z, y, N_BASE))


EPISODES = [episode(seed) for seed in range(8)]
HELDOUT = [episode(seed) for seed in range(100, 104)]
