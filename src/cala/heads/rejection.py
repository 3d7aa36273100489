"""Learning when nothing fits, on base rows that are judged without bias and on fake classes.

The score of a class is the host's logit: neither γβ nor δ says anything about how well an image
fits, and a model whose operating point is moved keeps its tables.
"""

from __future__ import annotations

import warnings

import numpy as np

from cala.core.fakes import EpisodePlan, FakePool, draw_episode, servable_shots
from cala.core.rejection import Rejection
from cala.core.rows import Array
from cala.errors import FallbackWarning
from cala.heads.adapter_training import MANY_SHOTS
from cala.heads.base import Head
from cala.heads.base_data import BaseData, Scorer

WAY = 5
QUERIES = 5
FAKE_QUERIES = 300  # per number of shots, at least
BASE_QUERIES = 15
MOST_QUERIES = 2000
MOST_FAKES = 200
FAKE_IMAGES = 25


def familiarity(head: Head, rejection: Rejection, features: Array) -> Array:
    """p-value of each row: the share of genuine images of its best class that fit no better.

    features : (n, d) -> (n,) float64
    """
    host = head.host
    return rejection.p_values(host.logits(features), host.table.counts, host.n_base)


def fit_rejection(
    head: Head,
    data: BaseData,
    *,
    seed: int = 0,
    shots: tuple[int, ...] = MANY_SHOTS,
    novel: int | None = None,
) -> Rejection:
    """Tables of how genuine images score, for a head fitted to this data and no more.

    shots : numbers of shots to make a table for; those that the fake classes can serve are made
    novel : how many novel classes to expect; None expects two thirds of the base classes
    """
    host = head.host
    if not data.queries.any():
        message = (
            "no base class has a second image to serve as a query: nothing will be called "
            "unknown; give at least two images per base class"
        )
        warnings.warn(FallbackWarning(message, "nothing_unknown"), stacklevel=2)
        return Rejection.off()
    rng = np.random.default_rng(seed)
    fakes = data.fake_pool(MOST_FAKES, FAKE_IMAGES, rng)
    served = servable_shots(tuple(sorted(set(shots))), fakes.images) if fakes.images > 1 else ()
    scorers = data.scorers(host)
    base = [_base_scores(scorer, data, rng) for scorer in scorers]
    expected = min(novel or max(1, round(2 * host.n_base / 3)), MOST_FAKES)
    enough = -(-FAKE_QUERIES // len(scorers))
    fake = {
        k: np.concatenate([_fake_scores(s.head, fakes, k, expected, enough, rng) for s in scorers])
        for k in served
    }
    return Rejection.of(np.concatenate(base), fake)


def _base_scores(scorer: Scorer, data: BaseData, rng: np.random.Generator) -> Array:
    """Best base logit of base queries: (m,)."""
    rows = scorer.rows.where(data.queries).draw(BASE_QUERIES, rng).thinned(MOST_QUERIES, rng)
    head = scorer.head
    members = rows.columns if scorer.leave_out else None
    logits = head.unit_logits(head.embed(data.features[rows.order]), members)
    return logits[:, : head.n_base].max(1)


def _fake_scores(
    host: Head, fakes: FakePool, k: int, expected: int, enough: int, rng: np.random.Generator
) -> Array:
    """Best novel logit of queries of fake classes that a fork has learned from k shots: (m,).

    expected : how many fake classes are learned at once; enough : how many queries to score
    """
    way = max(1, min(WAY, host.n_base // 2, expected))
    plan = EpisodePlan(way, max(1, round(expected / way)), (k,), QUERIES)
    if host.room is not None:
        plan = plan.within(host.room)
    plan = plan.fitted(fakes, host.n_base)
    parts: list[Array] = []
    while sum(map(len, parts)) < enough:
        draw = draw_episode(fakes, plan, rng)
        shots, queries = (
            host.embed(rows.astype(host.dtype, copy=False))
            for rows in (
                fakes.shots_at(draw.fakes[draw.shot_of], draw.shot_rows),
                fakes.features[draw.fakes[draw.query_of], draw.query_rows],
            )
        )
        grown = host.fork().add_unit(shots, max(host.classes) + 1 + draw.shot_of)
        parts.append(grown.unit_logits(queries)[:, host.n_base :].max(1))
    return np.concatenate(parts)
