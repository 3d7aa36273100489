"""Fake novel classes (Eq. 1): which base classes are mixed, and the pool of their embeddings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cala.core.cala import PrototypeTable, mix, normalise
from cala.core.rows import Array, ClassRows, Features, chunks, parts_of

LAMBDA_RANGE = (0.4, 0.6)
LISTED_PAIRS = 2**22  # more pairs than that are drawn one by one instead of listed and shuffled


@dataclass(frozen=True)
class FakePool:
    """Embeddings of fake classes, made once and drawn from by every pseudo session.

    features : (P, M, d), M images of each of P fake classes
    pairs : (P, 2) int64, the two base columns each one mixes, unordered and distinct
    shots : (P, M, d), the same images as they are embedded when they are shots; by default
        `features`
    """

    features: Array
    pairs: Array
    shots: Array | None = None

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def images(self) -> int:
        return int(self.features.shape[1])

    def split(self, share: float, rng: np.random.Generator) -> tuple[FakePool, FakePool]:
        """Two pools without a common pair; the second holds `share` of them, at least one."""
        order = rng.permutation(len(self))
        held = min(max(round(share * len(self)), 1), len(self) - 1)
        parts = np.sort(order[held:]), np.sort(order[:held])
        first, second = (self.take(rows) for rows in parts)
        return first, second

    def take(self, rows: Array) -> FakePool:
        """Some fake classes, by a mask (P,) or by their places."""
        return replace(self.mapped(lambda features: features[rows]), pairs=self.pairs[rows])

    def mapped(self, change: Callable[[Array], Array]) -> FakePool:
        """With `change` of features and shots."""
        shots = None if self.shots is None else change(self.shots)
        return FakePool(change(self.features), self.pairs, shots)

    def shots_at(self, fakes: Array, images: Array) -> Array:
        """Embeddings (n, d) of images (n,) of fake classes (n,) that are to be shots."""
        return (self.features if self.shots is None else self.shots)[fakes, images]


def draw_pairs(n_base: int, limit: int, rng: np.random.Generator) -> Array:
    """At most `limit` distinct unordered pairs of base classes, in random order: (P, 2)."""
    possible = n_base * (n_base - 1) // 2
    if possible > LISTED_PAIRS and 2 * limit < possible:
        return _draw_few_pairs(n_base, limit, rng)
    first, second = np.triu_indices(n_base, k=1)
    order = rng.permutation(possible)[:limit]
    return np.column_stack([first[order], second[order]])


def _draw_few_pairs(n_base: int, limit: int, rng: np.random.Generator) -> Array:
    """Like `draw_pairs` in memory that grows with `limit` only: draw, and draw again if known."""
    codes = np.empty(0, dtype=np.int64)
    while len(codes) < limit:
        drawn = np.sort(rng.integers(n_base, size=(2 * limit, 2)), axis=1)
        distinct = drawn[drawn[:, 0] != drawn[:, 1]]
        codes = np.concatenate([codes, distinct[:, 0] * n_base + distinct[:, 1]])
        codes = codes[np.sort(np.unique(codes, return_index=True)[1])]
    return np.column_stack(np.divmod(codes[:limit], n_base))


def draw_parents(
    rows: ClassRows, pairs: Array, images: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Which rows to mix, and how: row numbers (P, M) of both parents and λ (P, M).

    Within a fake class no row is mixed twice as long as its parents have M rows: some of its
    images will be shots and others queries, and queries made of the shots' own rows are too easy.
    """
    counts = rows.counts
    starts = np.cumsum(counts) - counts
    wanted = np.arange(images)

    def some(parent: int) -> Array:
        return starts[parent] + rng.permutation(counts[parent])[wanted % counts[parent]]

    places = np.array([some(parent) for pair in pairs.tolist() for parent in pair], dtype=np.int64)
    chosen = rows.order[places.reshape(len(pairs), 2, images)]
    return chosen[:, 0], chosen[:, 1], rng.uniform(*LAMBDA_RANGE, (len(pairs), images))


def pool_shape(counts: Array, pairs: int, images: int) -> tuple[int, int]:
    """Fake classes, and images of each, that base classes of (B,) rows can make, within
    pairs × images in all.

    A fake class has no more images than half of the base classes have rows; more fake classes
    make up for it.

    >>> pool_shape(np.full(30, 5), 80, 25)
    (400, 5)
    """
    n_base = len(counts)
    usual = int(np.sort(counts)[(n_base - 1) // 2])
    each = max(1, min(images, max(usual, 2)))
    return min(pairs * images // each, n_base * (n_base - 1) // 2), each


def mix_features(
    features: Features,
    rows: ClassRows,
    pairs: Array,
    *,
    count: int,
    rng: np.random.Generator,
    keep_spread: bool = True,
) -> FakePool:
    """Fake classes for users who only have embeddings: mix unit embeddings instead of images.

    Eq. 1 averages the deviations of two images as well as their classes, so a fake class would
    scatter only about 0.7 times as much as a real one, and look safer than it is.
    `keep_spread` mixes class means as Eq. 1 says, and scales the mixed deviations back up.

    features : (n, d); pairs : (P, 2) -> features (P, count, d)
    """
    left, right, lam = draw_parents(rows, pairs, count, rng)
    share = lam.astype(features.dtype)[..., None]
    dim = features.shape[1]
    columns = np.empty(len(features), dtype=np.int64)
    columns[rows.order] = rows.columns
    units = ((normalise(part), own) for part, own in parts_of(features, columns, rows.order))
    means = PrototypeTable.of(units, rows.n_classes, dim).means.astype(features.dtype)
    mixed = np.empty((len(pairs), count, dim), features.dtype)
    for part in chunks(len(pairs), count * dim):
        now = share[part]
        mixed[part] = mix(normalise(features[left[part]]), normalise(features[right[part]]), now)
        if keep_spread:
            both = means[pairs[part]]
            centres = mix(both[:, :1], both[:, 1:], now)
            spread = np.sqrt(now**2 + (1 - now) ** 2)
            mixed[part] = centres + (mixed[part] - centres) / spread
    return FakePool(mixed, pairs)
