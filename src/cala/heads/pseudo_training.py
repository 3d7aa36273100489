"""Training an adapter on its host's own logits: fork, add fake classes, score queries."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cala.core.adapters import Adapter, MLPAdapter, ScalarAdapter, SummaryAdapter
from cala.core.fitting import Objective, fit_by_steps, fit_convex
from cala.core.keeping import Keeper
from cala.core.losses import Scores
from cala.core.mixing import FakePool, draw_pairs, mix_features, pool_shape
from cala.core.operating_point import pseudo_trade_off
from cala.core.prototypes import normalise
from cala.core.pseudo import (
    Episode,
    EpisodePlan,
    draw_base_queries,
    draw_episode,
    servable_shots,
)
from cala.core.similarity import ClassContext
from cala.core.stored_rows import Features
from cala.errors import FallbackWarning
from cala.heads.base import Head, Judge
from cala.heads.fairness import fair_rows
from cala.heads.recipe import MANY_SHOTS, MAX_QUERIES, AdapterRecipe, as_la
from cala.metrics import TradeOff

MIN_PAIRS = 10
HELDOUT_SHARE = 0.2
BASE_POOL_PER_CLASS = 100
KEPT_QUERIES = 2**24  # numbers: 64 MB in single precision


@dataclass(frozen=True)
class Trained:
    """An adapter, the recipe it came to, and the trade-off curve of its held-out episodes."""

    adapter: Adapter
    recipe: AdapterRecipe
    curve: TradeOff


class BaseQueries:
    """Base rows (n,) of features in a host's metric: all of them at once, or as they are asked for.

    An episode takes a few thousand of them, and all may be a second copy of a large set.
    """

    def __init__(self, host: Head, features: Features, rows: Tensor) -> None:
        self.host, self.features, self.rows = host, features, rows.to(features.device)
        width = host.embed(features[self.rows[:1]]).shape[1] if len(rows) else 0
        few = len(rows) * width <= KEPT_QUERIES
        self.unit = host.embed(features[self.rows]) if few else None

    def at(self, places: Tensor) -> Tensor:
        """Embedded rows (m, e) of the queries at some places (m,)."""
        if self.unit is not None:
            return self.unit[places]
        return self.host.embed(self.features[self.rows[places]])


@dataclass(frozen=True)
class Stage:
    """Where episodes are played: a host and what it can judge fairly, all in its metric.

    queries, columns, members : base queries, their columns (n,) and, where they are part of the
        host's prototypes, the same columns, else -1
    reference : (B, d) the host's base prototypes, of unit length
    learn, held : fake classes to learn from and to select on, without a common pair
    """

    host: Head
    queries: BaseQueries
    columns: Tensor
    members: Tensor
    reference: Tensor
    learn: FakePool
    held: FakePool


def make_adapter(recipe: AdapterRecipe, n_base: int, generator: torch.Generator) -> Adapter:
    """An untrained adapter for B base classes."""
    if recipe.adapter == "scalar":
        return ScalarAdapter()
    if recipe.adapter == "summary":
        return SummaryAdapter(n_base)
    return MLPAdapter(
        n_base,
        generator=generator,
        inputs=recipe.inputs,
        tau=recipe.tau,
        hidden=recipe.hidden,
    )


def train_adapter(
    host: Head,
    recipe: AdapterRecipe,
    features: Features,
    columns: Tensor,
    *,
    fakes: FakePool | None,
    holdout: Tensor | None,
    seed: int,
) -> Trained:
    """Algorithm 1 on a host fitted to base features (n, d) with columns (n,)."""
    generator = torch.Generator().manual_seed(seed)
    usable = fair_rows(host, columns, holdout)
    judges = host.judges(features, columns, generator)
    # A metric of fewer rows than dimensions knows every one of them, and what is mixed from them.
    blind = len(judges) > 1 and host.dim > len(columns) - host.n_base and fakes is None
    if fakes is None:
        wanted, images = pool_shape(columns, recipe.fake_pairs, recipe.fake_images)
        fakes = mix_features(
            features,
            columns,
            draw_pairs(host.n_base, wanted, generator),
            count=images,
            generator=generator,
            keep_spread=recipe.keep_spread,
        )
    recipe = _fallback(recipe, fakes, queries=int(usable.sum()), blind=blind)
    learn, held = fakes.split(HELDOUT_SHARE, generator) if len(fakes) > 1 else (fakes, fakes)
    stages = [_stage(judge, usable, features, columns, learn, held, generator) for judge in judges]
    stages = [stage for stage in stages if len(stage.columns)] or stages[:1]
    plan = recipe.plan(host.n_base)
    if host.room is not None:
        plan = plan.within(host.room)
    keeper = Keeper()
    episodes, heldout = (
        [
            keeper.keep(_episode(stages[i % len(stages)], part, plan, generator))
            for i in range(count if usable.any() else 1)
        ]
        for part, count in (("learn", recipe.episodes), ("held", recipe.heldout_episodes))
    )

    adapter = make_adapter(recipe, host.n_base, generator).to(features.device, host.dtype)
    adapter.calibrate(ClassContext.concatenate([e.context for e in episodes]))
    objective = Objective(recipe.gamma, recipe.loss, recipe.rho, recipe.mu)
    if adapter.linear and usable.any():
        fit_convex(adapter, episodes, heldout, objective, ridges=recipe.ridges)
    elif usable.any():
        fit_by_steps(
            adapter,
            episodes,
            heldout,
            objective,
            generator=generator,
            epochs=recipe.epochs,
            steps=recipe.steps,
            lr=recipe.lr,
            optimiser=recipe.optimiser,
        )
    adapter.requires_grad_(False)
    judged = heldout or episodes
    curve = pseudo_trade_off(judged, [recipe.gamma * adapter(e.context) for e in judged])
    return Trained(adapter, recipe, curve)


def _stage(
    judge: Judge,
    usable: Tensor,
    features: Features,
    columns: Tensor,
    learn: FakePool,
    held: FakePool,
    generator: torch.Generator,
) -> Stage:
    rows = judge.rows[usable[judge.rows]]
    rows = rows[draw_base_queries(columns.cpu()[rows], BASE_POOL_PER_CLASS, generator)]
    own = columns[rows.to(columns.device)]

    def embedded(pool: FakePool) -> FakePool:
        flat = pool.features.to(features.device, features.dtype).flatten(0, 1)
        return FakePool(judge.head.embed(flat).unflatten(0, pool.features.shape[:2]), pool.pairs)

    return Stage(
        judge.head,
        BaseQueries(judge.head, features, rows),
        own,
        own if judge.leave_out else torch.full_like(own, -1),
        normalise(judge.head.prototypes[: judge.head.n_base]),
        embedded(learn),
        embedded(held),
    )


def _fallback(
    recipe: AdapterRecipe, fakes: FakePool, *, queries: int, blind: bool
) -> AdapterRecipe:
    """The largest adapter that the data can train; a fallback is LA in every number.

    blind : the fake classes were mixed from rows that the metric knows by heart
    """
    if queries == 0:
        warnings.warn(
            "no base class has a second image to serve as a query: the adapter is off (β = 0); "
            "give at least two images per base class",
            FallbackWarning,
            stacklevel=2,
        )
        return as_la(recipe)
    if len(fakes) < MIN_PAIRS and recipe.adapter != "scalar":
        warnings.warn(
            f"{len(fakes)} fake classes are too few to learn a class-aware adapter ({MIN_PAIRS} "
            "are needed, so at least 5 base classes): one shift for all novel classes (LA) was "
            "learned instead",
            FallbackWarning,
            stacklevel=2,
        )
        recipe = as_la(recipe)
    elif blind and recipe.adapter != "scalar":
        warnings.warn(
            "fewer base rows than dimensions: fake classes mixed from embeddings look closer than "
            "they are in a whitened metric, so one shift for all novel classes (LA) was learned "
            "instead of a class-aware adapter; mix images (`fake`, or `cala fit --fakes image`), "
            "or give more rows",
            FallbackWarning,
            stacklevel=2,
        )
        recipe = as_la(recipe)
    if max(recipe.shots) >= fakes.images:
        kept = servable_shots(recipe.shots, fakes.images)
        if recipe.shots != MANY_SHOTS:  # which are as many as can be had
            warnings.warn(
                f"fake classes have {fakes.images} images each, one of them at least a query: "
                f"pseudo sessions have {_listed(kept)} shots instead of {_listed(recipe.shots)}",
                FallbackWarning,
                stacklevel=2,
            )
        recipe = replace(recipe, shots=kept)
    return recipe


def _listed(shots: tuple[int, ...]) -> str:
    return ", ".join(map(str, shots))


def _episode(stage: Stage, part: str, plan: EpisodePlan, generator: torch.Generator) -> Episode:
    """Let a fork of the host learn fake classes, and score fake and base queries on it."""
    host = stage.host
    pool = stage.learn if part == "learn" else stage.held
    plan = plan.fitted(pool, host.n_base)
    draw = draw_episode(pool, plan, generator)
    first = max(host.classes) + 1
    shots = pool.features[draw.fakes[draw.shot_of], draw.shot_rows]
    fork = host.fork().add_unit(shots, (first + draw.shot_of).to(shots.device))

    queries = pool.features[draw.fakes[draw.query_of], draw.query_rows]
    rows = draw_base_queries(stage.columns, plan.base_queries, generator)
    if len(rows) > MAX_QUERIES:
        rows = rows[torch.randperm(len(rows), generator=generator)[:MAX_QUERIES]]
    fake = host.n_base + draw.query_of.to(stage.columns.device)
    members = torch.cat([stage.members[rows], torch.full_like(fake, -1)])
    logits = fork.unit_logits(torch.cat([stage.queries.at(rows), queries]), members)
    columns = torch.cat([stage.columns[rows], fake])

    novel = torch.arange(host.n_base, len(fork.classes), device=logits.device)
    context = ClassContext.of(fork.prototypes_at(novel), fork.table.at(novel), stage.reference)
    return Episode(context, Scores.of(logits, columns, host.n_base))
