"""Pseudo sessions: which fake classes, shots and queries make up one episode (Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cala.core.fakes import FakePool
from cala.core.rows import Array
from cala.errors import InputError


@dataclass(frozen=True)
class EpisodePlan:
    """The shape of an episode: T̃ pseudo sessions of N fake classes with K shots each.

    Each fake class draws its own K from `shots`. A fake class has M images in the pool, so it
    gets min(queries, M - K) queries.
    """

    way: int = 5
    sessions: int = 8
    shots: tuple[int, ...] = (5,)
    queries: int = 15
    base_queries: int = 15

    def fitted(self, pool: FakePool, n_base: int) -> EpisodePlan:
        """The nearest plan that `pool` can serve: fewer or smaller sessions, fewer shots."""
        way = max(1, min(self.way, n_base // 2, len(pool)))
        wanted = self.way * self.sessions
        sessions = max(1, min(-(-wanted // way), len(pool) // way))
        shots = servable_shots(self.shots, pool.images)
        return replace(self, way=way, sessions=sessions, shots=shots)

    def within(self, room: int) -> EpisodePlan:
        """A plan of at most `room` fake classes."""
        if room < 1:
            raise InputError(
                "there is no room for another class, so none can be tried out: an adapter needs "
                "one; use the method without it, or an encoder trained with more room"
            )
        way = max(1, min(self.way, room))
        return replace(self, way=way, sessions=max(1, min(self.sessions, room // way)))


def servable_shots(shots: tuple[int, ...], images: int) -> tuple[int, ...]:
    """Those numbers of shots that leave one of a fake class's images as a query.

    Where they are few for the images that there are, the largest that is possible joins them.

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
    sessions : (F,) the pseudo session that each arrives in, ascending
    shot_rows, shot_of : (S,) image index and fake class 0..F-1 of every shot
    query_rows, query_of : (Q,) the same for queries
    """

    fakes: Array
    sessions: Array
    shot_rows: Array
    shot_of: Array
    query_rows: Array
    query_of: Array


def draw_fakes(
    pairs: Array, way: int, sessions: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Fake classes for one episode and the session of each: (F,), (F,), F at most way·sessions.

    A pair is used at most once per episode; inside one session all parents are distinct.
    """
    order = rng.permutation(len(pairs)).tolist()
    parents = pairs.tolist()
    chosen: list[int] = []
    sizes: list[int] = []
    for _ in range(sessions):
        taken: set[int] = set()
        session: list[int] = []
        passed: list[int] = []
        for position, index in enumerate(order):
            first, second = parents[index]
            if first in taken or second in taken:
                passed.append(index)
                continue
            taken.update((first, second))
            session.append(index)
            if len(session) == way:
                passed.extend(order[position + 1 :])
                break
        chosen += session
        sizes.append(len(session))
        order = passed
    return np.array(chosen, dtype=np.int64), np.repeat(np.arange(sessions), sizes)


def draw_episode(pool: FakePool, plan: EpisodePlan, rng: np.random.Generator) -> EpisodeDraw:
    """Choose fake classes and split the images of each into shots and queries."""
    fakes, sessions = draw_fakes(pool.pairs, plan.way, plan.sessions, rng)
    k = np.array(plan.shots)[rng.integers(len(plan.shots), size=(len(fakes), 1))]
    images = rng.random((len(fakes), pool.images)).argsort(1)
    place = np.arange(pool.images)
    is_shot = place < k
    is_query = ~is_shot & (place < k + plan.queries)
    owner = np.broadcast_to(np.arange(len(fakes))[:, None], images.shape)
    return EpisodeDraw(
        fakes, sessions, images[is_shot], owner[is_shot], images[is_query], owner[is_query]
    )
