"""Learning when nothing fits, on base rows that are judged fairly and on fake classes.

The score of a class is the host's logit: neither γβ nor δ says anything about how well an image
fits, and a model whose operating point is moved keeps its tables.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from cala.core.mixing import FakePool, draw_pairs, mix_features, pool_shape
from cala.core.pseudo import (
    EpisodePlan,
    draw_base_queries,
    draw_episode,
    servable_shots,
)
from cala.core.rejection import Rejection
from cala.errors import FallbackWarning
from cala.heads.adapted import AdaptedHead
from cala.heads.base import Head, Judge
from cala.heads.fairness import fair_rows
from cala.heads.recipe import MANY_SHOTS

WAY = 5
QUERIES = 5
FAKE_QUERIES = 300  # per number of shots, at least
BASE_QUERIES = 15
MOST_QUERIES = 2000
MOST_FAKES = 200
FAKE_IMAGES = 25


def host_of(head: Head) -> Head:
    """The head without its adapter."""
    return head.host if isinstance(head, AdaptedHead) else head


def familiarity(head: Head, rejection: Rejection, features: Tensor) -> Tensor:
    """p-value of each row: the share of genuine images of its best class that fit no better.

    features : (n, d) -> (n,) float64 on the CPU
    """
    host = host_of(head)
    return rejection.p_values(host.logits(features), host.table.counts, host.n_base)


@torch.no_grad()
def fit_rejection(
    head: Head,
    features: Tensor,
    columns: Tensor,
    *,
    fakes: FakePool | None = None,
    holdout: Tensor | None = None,
    seed: int = 0,
    shots: tuple[int, ...] = MANY_SHOTS,
    novel: int | None = None,
) -> Rejection:
    """Tables of how genuine images score, for a head fitted to these base rows and no more.

    features : (n, d); columns : (n,) base columns
    fakes : fake classes; without them some are mixed from the rows
    holdout : (n,) bool, rows that the encoder was not trained on
    shots : numbers of shots to make a table for; those that the fake classes can serve are made
    novel : how many novel classes to expect; None expects two thirds of the base classes
    """
    host = host_of(head)
    usable = fair_rows(host, columns, holdout)
    if not usable.any():
        warnings.warn(
            "no base class has a second image to serve as a query: nothing will be called "
            "unknown; give at least two images per base class",
            FallbackWarning,
            stacklevel=2,
        )
        return Rejection.off()
    generator = torch.Generator().manual_seed(seed)
    if fakes is None:
        wanted, images = pool_shape(columns, MOST_FAKES, FAKE_IMAGES)
        pairs = draw_pairs(host.n_base, wanted, generator)
        fakes = mix_features(features, columns, pairs, count=images, generator=generator)
    served = servable_shots(tuple(sorted(set(shots))), fakes.images) if fakes.images > 1 else ()
    judges = host.judges(features, columns, generator)
    base = [_base_scores(judge, usable, features, columns, generator) for judge in judges]
    expected = min(novel or max(1, round(2 * host.n_base / 3)), MOST_FAKES)
    enough = -(-FAKE_QUERIES // len(judges))
    fake = {
        k: [_fake_scores(judge.head, fakes, k, expected, enough, generator) for judge in judges]
        for k in served
    }
    return Rejection.of(torch.cat(base), {k: torch.cat(parts) for k, parts in fake.items()})


def _base_scores(
    judge: Judge, usable: Tensor, features: Tensor, columns: Tensor, generator: torch.Generator
) -> Tensor:
    """Best base logit of fair base rows: (m,)."""
    rows = judge.rows[usable[judge.rows]]
    rows = rows[draw_base_queries(columns.cpu()[rows], BASE_QUERIES, generator)]
    rows = rows[torch.randperm(len(rows), generator=generator)[:MOST_QUERIES]]
    own = columns[rows.to(columns.device)]
    members = own if judge.leave_out else None
    logits = judge.head.unit_logits(judge.head.embed(features[rows]), members)
    return logits[:, : judge.head.n_base].amax(1)


def _fake_scores(
    host: Head, fakes: FakePool, k: int, expected: int, enough: int, generator: torch.Generator
) -> Tensor:
    """Best novel logit of queries of fake classes that a fork has learned from k shots: (m,).

    expected : how many fake classes are learned at once; enough : how many queries to score
    """
    way = max(1, min(WAY, host.n_base // 2, expected))
    plan = EpisodePlan(way, max(1, round(expected / way)), (k,), QUERIES).fitted(fakes, host.n_base)
    parts: list[Tensor] = []
    while sum(map(len, parts)) < enough:
        draw = draw_episode(fakes, plan, generator)
        shots = host.embed(_images(fakes, draw.fakes[draw.shot_of], draw.shot_rows, host))
        queries = host.embed(_images(fakes, draw.fakes[draw.query_of], draw.query_rows, host))
        labels = (max(host.classes) + 1 + draw.shot_of).to(shots.device)
        logits = host.fork().add_unit(shots, labels).unit_logits(queries)
        parts.append(logits[:, host.n_base :].amax(1))
    return torch.cat(parts)


def _images(fakes: FakePool, owners: Tensor, rows: Tensor, host: Head) -> Tensor:
    return fakes.features[owners, rows].to(host.table.counts.device, host.dtype)
