"""Fake novel classes (Eq. 1), and the pseudo sessions drawn from them (Algorithm 1).

First the pool: which base classes are mixed, and the embeddings of their mixed images. Then the
episodes: which fake classes arrive in which pseudo session, and which of their images are shots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from cala.core._memory import draw_few_pairs
from cala.core.cala import PrototypeTable, mix, normalise
from cala.core.rows import Array, ClassRows, Features, chunks, parts_of
from cala.errors import InputError

LAMBDA_RANGE = (0.4, 0.6)
LISTED_PAIRS = 2**22  # above this, pairs are drawn one by one instead of listed and shuffled


@dataclass(frozen=True)
class FakePool:
    """Embeddings of fake classes, made once; every pseudo session draws from them.

    features : (P, M, d), M images of each of P fake classes
    pairs : (P, 2) int64, the two distinct base columns that each one mixes, in no order
    shots : (P, M, d), the same images, embedded as shots; by default `features`
    """

    features: Array
    pairs: Array
    shots: Array | None = None

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def images(self) -> int:
        return int(self.features.shape[1])

    def mapped(self, embed: Callable[[Array], Array]) -> FakePool:
        """The pool with its images, as rows (P·M, d), embedded in another space (P·M, e)."""

        def each(features: Array) -> Array:
            return embed(features.reshape(-1, features.shape[2])).reshape(*features.shape[:2], -1)

        shots = None if self.shots is None else each(self.shots)
        return FakePool(each(self.features), self.pairs, shots)

    def split(self, share: float, rng: Generator) -> tuple[FakePool, FakePool]:
        """Two pools with no pair in common; the second holds `share` of the pairs, at least one."""
        order = rng.permutation(len(self))
        held = min(max(round(share * len(self)), 1), len(self) - 1)
        return self.take(np.sort(order[held:])), self.take(np.sort(order[:held]))

    def take(self, rows: Array) -> FakePool:
        """Some fake classes, by a mask (P,) or by their indices."""
        shots = None if self.shots is None else self.shots[rows]
        return FakePool(self.features[rows], self.pairs[rows], shots)

    def shots_at(self, fakes: Array, images: Array) -> Array:
        """Embeddings (n, d), as shots, of images (n,) of fake classes (n,)."""
        return (self.features if self.shots is None else self.shots)[fakes, images]


def draw_pairs(n_base: int, limit: int, rng: Generator) -> Array:
    """At most `limit` distinct unordered pairs of base classes, in random order: (P, 2)."""
    possible = n_base * (n_base - 1) // 2
    if possible > LISTED_PAIRS and 2 * limit < possible:
        return draw_few_pairs(n_base, limit, rng)
    return np.column_stack(np.triu_indices(n_base, k=1))[rng.permutation(possible)[:limit]]


def draw_parents(
    rows: ClassRows, pairs: Array, images: int, rng: Generator
) -> tuple[Array, Array, Array]:
    """Which rows to mix, and how: row numbers (P, M) of both parents and λ (P, M).

    Within a fake class no row is mixed twice if its parents have at least M rows: some of its
    images become shots and others queries, and queries mixed from the shots' rows are too easy.
    """
    counts, wanted = rows.counts, np.arange(images)
    starts = np.cumsum(counts) - counts

    def some(parent: int) -> Array:
        return starts[parent] + rng.permutation(counts[parent])[wanted % counts[parent]]

    places = np.array([some(parent) for pair in pairs.tolist() for parent in pair], dtype=np.int64)
    chosen = rows.order[places.reshape(len(pairs), 2, images)]
    return chosen[:, 0], chosen[:, 1], rng.uniform(*LAMBDA_RANGE, (len(pairs), images))


def pool_shape(counts: Array, pairs: int, images: int) -> tuple[int, int]:
    """How many fake classes to make, and with how many images each, from base classes with
    `counts` (B,) rows; at most pairs × images in all.

    A fake class has at most as many images as the median base class has rows; more fake classes
    make up for it.

    >>> pool_shape(np.full(30, 5), 80, 25)
    (400, 5)
    """
    n_base = len(counts)
    each = max(1, min(images, max(int(np.sort(counts)[(n_base - 1) // 2]), 2)))
    return min(pairs * images // each, n_base * (n_base - 1) // 2), each


def mix_features(
    features: Features,
    rows: ClassRows,
    pairs: Array,
    count: int,
    rng: Generator,
    keep_spread: bool = True,
) -> FakePool:
    """Fake classes for users who only have embeddings: mix unit embeddings instead of images.

    Eq. 1 averages the deviations of two images as well as their classes, so a fake class would
    scatter only about 0.7 times as much as a real one, and look easier than it is.
    `keep_spread` mixes class means as in Eq. 1, and scales the mixed deviations back up.

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
            mixed[part] = centres + (mixed[part] - centres) / np.sqrt(now**2 + (1 - now) ** 2)
    return FakePool(mixed, pairs)


# Pseudo sessions.


@dataclass(frozen=True)
class EpisodePlan:
    """The shape of an episode: T̃ pseudo sessions of N fake classes with K shots each.

    Each fake class draws its own K from `shots`. With M images in the pool, it gets
    min(queries, M - K) queries.
    """

    way: int = 5
    sessions: int = 8
    shots: tuple[int, ...] = (5,)
    queries: int = 15
    base_queries: int = 15

    def fitted(self, pool: FakePool, n_base: int) -> EpisodePlan:
        """The nearest plan that `pool` can serve: fewer or smaller sessions, fewer shots."""
        way = max(1, min(self.way, n_base // 2, len(pool)))
        sessions = max(1, min(-(-self.way * self.sessions // way), len(pool) // way))
        shots = servable_shots(self.shots, pool.images)
        return replace(self, way=way, sessions=sessions, shots=shots)

    def within(self, room: int) -> EpisodePlan:
        """A plan of at most `room` fake classes."""
        if room < 1:
            fix = "use the method without an adapter, or an encoder trained with more room"
            raise InputError("the head has no room for a fake class", fix, code="no_room")
        way = max(1, min(self.way, room))
        return replace(self, way=way, sessions=max(1, min(self.sessions, room // way)))


def servable_shots(shots: tuple[int, ...], images: int) -> tuple[int, ...]:
    """The numbers of shots that leave at least one image of a fake class as a query.

    If some are dropped and the rest use less than half of the images, the largest possible number
    is added.

    >>> servable_shots((1, 2, 5, 10), 12), servable_shots((1, 2, 5, 10), 5)
    ((1, 2, 5, 10), (1, 2, 4))
    """
    kept = tuple(k for k in shots if k < images)
    most = max(1, images - 1)
    lost = len(kept) < len(shots) and max(kept, default=0) < images / 2
    return (*kept, most) if lost and most not in kept else kept


@dataclass(frozen=True)
class EpisodeDraw:
    """Images of a pool chosen for one episode with F fake classes.

    fakes : (F,) index into the pool, in order of arrival
    sessions : (F,) the pseudo session in which each arrives, ascending
    shot_rows, shot_of : (S,) image index and fake class 0..F-1 of every shot
    query_rows, query_of : (Q,) the same for queries
    """

    fakes: Array
    sessions: Array
    shot_rows: Array
    shot_of: Array
    query_rows: Array
    query_of: Array


def draw_fakes(pairs: Array, way: int, sessions: int, rng: Generator) -> tuple[Array, Array]:
    """Fake classes for one episode and the session of each: (F,), (F,), with F ≤ way·sessions.

    A pair is used at most once per episode; within a session all parents are distinct.
    """
    order, parents = rng.permutation(len(pairs)).tolist(), pairs.tolist()
    chosen: list[int] = []
    arrival: list[int] = []
    for session in range(sessions):
        taken: set[int] = set()
        own: set[int] = set()
        for index in order:
            if taken.isdisjoint(parents[index]):
                taken.update(parents[index])
                own.add(index)
                if len(own) == way:
                    break
        chosen += [index for index in order if index in own]
        arrival += [session] * len(own)
        order = [index for index in order if index not in own]
    return np.array(chosen, dtype=np.int64), np.array(arrival, dtype=np.int64)


def draw_episode(pool: FakePool, plan: EpisodePlan, rng: Generator) -> EpisodeDraw:
    """Choose fake classes and split the images of each into shots and queries."""
    fakes, sessions = draw_fakes(pool.pairs, plan.way, plan.sessions, rng)
    k = np.array(plan.shots)[rng.integers(len(plan.shots), size=(len(fakes), 1))]
    images = rng.random((len(fakes), pool.images)).argsort(1)
    place = np.arange(pool.images)
    is_shot, is_query = place < k, (place >= k) & (place < k + plan.queries)
    owner = np.broadcast_to(np.arange(len(fakes))[:, None], images.shape)
    shots, queries = ((images[part], owner[part]) for part in (is_shot, is_query))
    return EpisodeDraw(fakes, sessions, *shots, *queries)
