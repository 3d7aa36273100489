"""Training an adapter on its host: which rows, fake classes and episodes Algorithm 1 sees."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cala.core.adapters import OPTIMISERS, Adapter
from cala.core.cala import (
    AdapterLoss,
    Episode,
    Queries,
    Session,
    normalise,
    play,
    train_by_steps,
    train_convex,
)
from cala.core.calibration import Temperature
from cala.core.fakes import FakePool, draw_pairs, mix_features, pool_shape
from cala.core.operating_point import pseudo_trade_off
from cala.core.pseudo import EpisodeDraw, EpisodePlan, draw_episode, servable_shots
from cala.core.rows import Array, ClassRows, Features
from cala.errors import DivergenceWarning, FallbackWarning
from cala.heads.base import Head
from cala.heads.base_data import BaseData, Scorer
from cala.heads.recipe import MANY_SHOTS, MAX_QUERIES, AdapterRecipe
from cala.metrics import TradeOff

MIN_PAIRS = 10
HELDOUT_SHARE = 0.2
BASE_POOL_PER_CLASS = 100
KEPT_QUERIES = 2**24  # numbers: 64 MB in single precision
SANE_SHIFT = 1000.0  # no logit is near it
SAMPLED = 2**17  # logits of an episode that are kept to see how sure the answers should be


@dataclass(frozen=True)
class Trained:
    """An adapter, the recipe it came to, and what its held-out episodes say: the trade-off curve,
    and how sure to be."""

    adapter: Adapter
    recipe: AdapterRecipe
    curve: TradeOff
    temperature: Temperature


def train_adapter(host: Head, recipe: AdapterRecipe, data: BaseData, *, seed: int) -> Trained:
    """Algorithm 1 on a host that was fitted to `data`."""
    rng = np.random.default_rng(seed)
    recipe, episodes, heldout = play_fakes(host, recipe, data, rng)
    adapter = recipe.make(host.n_base, rng)
    adapter.calibrate([e.context for e in episodes])
    if not recipe.clamp:
        adapter.low, adapter.high = -np.inf, np.inf
    loss = AdapterLoss(recipe.gamma, recipe.loss, recipe.rho, recipe.mu)
    trainable = bool(data.queries.any())
    if trainable and adapter.linear:
        train_convex(adapter, episodes, heldout, loss, ridges=recipe.ridges)
    elif trainable:
        train_by_steps(
            adapter,
            episodes,
            heldout,
            loss,
            rng,
            epochs=recipe.epochs,
            steps=recipe.steps,
            step=OPTIMISERS[recipe.optimiser](recipe.lr),
        )
    judged = heldout or episodes
    shifts = [recipe.gamma * adapter(e.context) for e in judged]
    mean = float(np.mean(np.concatenate(shifts)))
    if not abs(mean) < SANE_SHIFT:
        message = (
            f"the adapter diverged: its mean shift is {mean:.3g}, so new classes are never or "
            f"always predicted; loss={recipe.loss!r} has no minimum here, loss='balanced' has one"
        )
        warnings.warn(DivergenceWarning(message, "diverged"), stacklevel=3)
    curve = pseudo_trade_off(judged, shifts)
    return Trained(adapter, recipe, curve, fit_temperature(judged, shifts))


def fit_temperature(episodes: Sequence[Episode], shifts: Sequence[Array]) -> Temperature:
    """How sure to be of logits whose novel columns are shifted, one (F,) per episode."""
    parts = []
    for episode, shift in zip(episodes, shifts, strict=True):
        if episode.sample is not None:
            logits, columns = episode.sample
            n_base = logits.shape[1] - len(shift)
            parts.append((logits + np.pad(shift, (n_base, 0)), columns, n_base))
    return Temperature.of(parts)


def play_fakes(
    host: Head, recipe: AdapterRecipe, data: BaseData, rng: np.random.Generator
) -> tuple[AdapterRecipe, list[Episode], list[Episode]]:
    """Episodes of fake classes to learn from, and others, of other pairs, to judge by.

    Also the recipe that the data can afford; without any base query there is one episode each.
    """
    scorers = data.scorers(host)
    fakes = data.fakes
    if fakes is None:
        wanted, images = pool_shape(data.rows.counts, recipe.fake_pairs, recipe.fake_images)
        fakes = mix_features(
            data.features,
            data.rows,
            draw_pairs(data.n_base, wanted, rng),
            count=images,
            rng=rng,
            keep_spread=recipe.keep_spread,
        )
    # A metric of fewer rows than dimensions knows every one of them, and what is mixed from them.
    blind = len(scorers) > 1 and data.dim > len(data) - data.n_base and data.fakes is None
    recipe = _affordable(recipe, fakes, queries=int(data.queries.sum()), blind=blind)
    learn, held = fakes.split(HELDOUT_SHARE, rng) if len(fakes) > 1 else (fakes, fakes)
    stages = [_Stage(scorer, data, learn, held, rng) for scorer in scorers]
    stages = [stage for stage in stages if len(stage.rows)] or stages[:1]
    plan = recipe.plan(host.n_base)
    if host.room is not None:
        plan = plan.within(host.room)
    counts = (recipe.episodes, recipe.heldout_episodes) if data.queries.any() else (1, 1)
    episodes, heldout = (
        [stages[i % len(stages)].episode(part, plan, rng) for i in range(count)]
        for part, count in zip(("learn", "held"), counts, strict=True)
    )
    return recipe, episodes, heldout


class _Stage:
    """Where episodes are played: a head and what it can score without bias, all in its metric."""

    def __init__(
        self,
        scorer: Scorer,
        data: BaseData,
        learn: FakePool,
        held: FakePool,
        rng: np.random.Generator,
    ) -> None:
        self.head, self.leave_out = scorer.head, scorer.leave_out
        rows = scorer.rows.where(data.queries).draw(BASE_POOL_PER_CLASS, rng)
        self.rows = ClassRows(np.arange(len(rows)), rows.columns, rows.n_classes)
        self.queries = _BaseQueries(self.head, data.features, rows.order)
        self.base = normalise(self.head.prototypes[: self.head.n_base])
        self.pools = {"learn": self._embedded(learn), "held": self._embedded(held)}

    def _embedded(self, pool: FakePool) -> FakePool:
        shape = pool.features.shape
        flat = pool.features.astype(self.head.dtype, copy=False).reshape(-1, shape[2])
        return FakePool(self.head.embed(flat).reshape(*shape[:2], -1), pool.pairs)

    def episode(self, part: str, plan: EpisodePlan, rng: np.random.Generator) -> Episode:
        """A fork of the head learns fake classes, and fake and base queries are scored on it."""
        pool, n_base = self.pools[part], self.head.n_base
        plan = plan.fitted(pool, n_base)
        draw = draw_episode(pool, plan, rng)
        base = self.rows.draw(plan.base_queries, rng).thinned(MAX_QUERIES, rng)
        members = base.columns if self.leave_out else np.full(len(base), -1)
        fake = n_base + draw.query_of
        queries = Queries(
            np.concatenate(
                [
                    self.queries.at(base.order),
                    pool.features[draw.fakes[draw.query_of], draw.query_rows],
                ]
            ),
            np.concatenate([base.columns, fake]),
            np.concatenate([members, np.full(len(fake), -1)]),
        )
        sampled = SAMPLED if part == "held" else 0
        return play(self.head, self._sessions(pool, draw), queries, self.base, sampled=sampled)

    def _sessions(self, pool: FakePool, draw: EpisodeDraw) -> Iterator[Session]:
        """N fake classes at a time; all at once where the head's columns do not interact."""
        shots = pool.features[draw.fakes[draw.shot_of], draw.shot_rows]
        if self.head.traits.old_columns_stay:
            yield Session(shots, draw.shot_of)
            return
        arrival = draw.sessions[draw.shot_of]
        for session in np.unique(arrival):
            yield Session(shots[arrival == session], draw.shot_of[arrival == session])


class _BaseQueries:
    """Base rows (n,) of features in a head's metric: all of them at once, or as they are asked for.

    An episode takes a few thousand of them, and all may be a second copy of a large set.
    """

    def __init__(self, head: Head, features: Features, rows: Array) -> None:
        self.head, self.features, self.rows = head, features, rows
        width = head.embed(features[rows[:1]]).shape[1] if len(rows) else 0
        few = len(rows) * width <= KEPT_QUERIES
        self.unit = head.embed(features[rows]) if few else None

    def at(self, places: Array) -> Array:
        """Embedded rows (m, e) of the queries at some places (m,)."""
        if self.unit is not None:
            return self.unit[places]
        return self.head.embed(self.features[self.rows[places]])


def _affordable(
    recipe: AdapterRecipe, fakes: FakePool, *, queries: int, blind: bool
) -> AdapterRecipe:
    """The largest adapter that the data can train; a fallback is LA in every number.

    blind : the fake classes were mixed from rows that the metric knows by heart
    """
    problem = None
    if queries == 0:
        problem = FallbackWarning(
            "no base class has a second image to serve as a query: the adapter is off (β = 0); "
            "give at least two images per base class",
            "adapter_off",
        )
    elif recipe.adapter != "scalar" and len(fakes) < MIN_PAIRS:
        problem = FallbackWarning(
            f"{len(fakes)} fake classes are too few to learn a class-aware adapter ({MIN_PAIRS} "
            "are needed, so at least 5 base classes): one shift for all novel classes (LA) was "
            "learned instead",
            "few_fakes",
        )
    elif recipe.adapter != "scalar" and blind:
        problem = FallbackWarning(
            "fewer base rows than dimensions: fake classes mixed from embeddings look closer than "
            "they are in a whitened metric, so one shift for all novel classes (LA) was learned "
            "instead of a class-aware adapter; mix images (`fake`, or `cala fit --fakes image`), "
            "or give more rows",
            "few_rows",
        )
    if problem is not None:
        warnings.warn(problem, stacklevel=3)
        recipe = recipe.as_la()
    if queries == 0 or max(recipe.shots) < fakes.images:
        return recipe
    kept = servable_shots(recipe.shots, fakes.images)
    if recipe.shots != MANY_SHOTS:  # which are as many as can be had
        message = (
            f"fake classes have {fakes.images} images each, one of them at least a query: "
            f"pseudo sessions have {_listed(kept)} shots instead of {_listed(recipe.shots)}"
        )
        warnings.warn(FallbackWarning(message, "fewer_shots"), stacklevel=3)
    return replace(recipe, shots=kept)


def _listed(shots: tuple[int, ...]) -> str:
    return ", ".join(map(str, shots))
