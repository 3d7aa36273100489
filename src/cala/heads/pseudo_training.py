"""Training an adapter on its host's own logits: fork, add fake classes, score queries."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cala.core.adapters import Adapter, MLPAdapter, ScalarAdapter, SummaryAdapter
from cala.core.fitting import FitResult, Objective, fit_by_steps, fit_convex
from cala.core.losses import Scores
from cala.core.mixing import FakePool, draw_pairs, mix_features
from cala.core.operating_point import pseudo_trade_off
from cala.core.pseudo import Episode, EpisodePlan, draw_base_queries, draw_episode
from cala.core.similarity import ClassContext
from cala.errors import FallbackWarning
from cala.heads.base import Head
from cala.heads.recipe import MAX_QUERIES, AdapterRecipe
from cala.metrics import TradeOff

MIN_PAIRS = 10
HELDOUT_SHARE = 0.2
BASE_POOL_PER_CLASS = 100


@dataclass(frozen=True)
class Trained:
    """An adapter, what selection saw, and the trade-off curve of its held-out episodes."""

    adapter: Adapter
    recipe: AdapterRecipe
    result: FitResult
    curve: TradeOff


@dataclass(frozen=True)
class BasePool:
    """Base rows that may serve as queries, in the host's metric: unit (n, d), columns (n,)."""

    unit: Tensor
    columns: Tensor


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
    features: Tensor,
    columns: Tensor,
    *,
    fakes: FakePool | None,
    holdout: Tensor | None,
    seed: int,
) -> Trained:
    """Algorithm 1 on a host fitted to base features (n, d) with columns (n,)."""
    generator = torch.Generator().manual_seed(seed)
    base = _base_pool(host, features, columns, holdout, generator)
    if fakes is None:
        pairs = draw_pairs(host.n_base, recipe.fake_pairs, generator)
        fakes = mix_features(
            features, columns, pairs, count=recipe.fake_images, generator=generator
        )
    recipe = _fallback(recipe, fakes, base)
    flat = fakes.features.to(features).flatten(0, 1)
    pool = FakePool(host.embed(flat).unflatten(0, fakes.features.shape[:2]), fakes.pairs)
    learn, held = pool.split(HELDOUT_SHARE, generator) if len(pool) > 1 else (pool, pool)

    plan = recipe.plan(host.n_base)
    reference = host.prototypes[: host.n_base]
    episodes, heldout = (
        [_episode(host, part, plan, base, reference, generator) for _ in range(count)]
        for part, count in ((learn, recipe.episodes), (held, recipe.heldout_episodes))
    )

    adapter = make_adapter(recipe, host.n_base, generator).to(features.device, host.dtype)
    adapter.calibrate(ClassContext.concatenate([e.context for e in episodes]))
    objective = Objective(recipe.gamma, recipe.loss, recipe.rho, recipe.mu)
    if len(base.columns) == 0:
        result = FitResult((), -1)
    elif adapter.linear:
        result = fit_convex(adapter, episodes, heldout, objective, ridges=recipe.ridges)
    else:
        result = fit_by_steps(
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
    return Trained(adapter, recipe, result, curve)


def _base_pool(
    host: Head,
    features: Tensor,
    columns: Tensor,
    holdout: Tensor | None,
    generator: torch.Generator,
) -> BasePool:
    """Held-out rows where there are any, else all, of classes that survive leaving one out."""
    usable = host.table.counts[columns] > 1
    if holdout is not None:
        usable = usable & holdout.to(usable.device)
    rows = usable.cpu().nonzero()[:, 0]
    rows = rows[draw_base_queries(columns.cpu()[rows], BASE_POOL_PER_CLASS, generator)]
    return BasePool(host.embed(features[rows]), columns[rows])


def _fallback(recipe: AdapterRecipe, fakes: FakePool, base: BasePool) -> AdapterRecipe:
    """The largest adapter that the data can train."""
    if len(base.columns) == 0:
        warnings.warn(
            "no base class has a second image to serve as a query: the adapter is off (β = 0); "
            "give at least two images per base class",
            FallbackWarning,
            stacklevel=2,
        )
        return replace(recipe, adapter="scalar")
    if len(fakes) < MIN_PAIRS and recipe.adapter != "scalar":
        warnings.warn(
            f"{len(fakes)} fake classes are too few to learn a class-aware adapter (needs "
            f"{MIN_PAIRS}, from at least 5 base classes): one shift for all novel classes (LA) "
            "was learned instead",
            FallbackWarning,
            stacklevel=2,
        )
        return replace(recipe, adapter="scalar")
    return recipe


def _episode(
    host: Head,
    pool: FakePool,
    plan: EpisodePlan,
    base: BasePool,
    reference: Tensor,
    generator: torch.Generator,
) -> Episode:
    """Let a fork of the host learn fake classes, and score fake and base queries on it."""
    plan = plan.fitted(pool, host.n_base)
    draw = draw_episode(pool, plan, generator)
    first = max(host.classes) + 1
    shots = pool.features[draw.fakes[draw.shot_of], draw.shot_rows]
    fork = host.fork().add_unit(shots, (first + draw.shot_of).to(shots.device))

    queries = pool.features[draw.fakes[draw.query_of], draw.query_rows]
    rows = draw_base_queries(base.columns, plan.base_queries, generator)
    if len(rows) > MAX_QUERIES:
        rows = rows[torch.randperm(len(rows), generator=generator)[:MAX_QUERIES]]
    unit = torch.cat([base.unit[rows], queries])
    none = torch.full((len(queries),), -1, device=unit.device)
    own = base.columns[rows]
    logits = fork.unit_logits(unit, torch.cat([own, none]))
    columns = torch.cat([own, host.n_base + draw.query_of.to(own.device)])

    novel = torch.arange(host.n_base, len(fork.classes), device=unit.device)
    table = fork.table.at(novel)
    context = ClassContext.of(fork.prototypes_at(novel), table, reference)
    return Episode(context, Scores.of(logits, columns, host.n_base))
