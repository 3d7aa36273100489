"""How an adapter is trained on its host: the recipe, and the episodes that Algorithm 1 sees."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.random import Generator

from cala.core._memory import embedded_rows
from cala.core.adapters import ADAPTER_KINDS, INPUTS, OPTIMISERS, Adapter
from cala.core.cala import (
    LOSSES,
    AdapterLoss,
    Episode,
    Queries,
    Session,
    normalise,
    play,
    train_by_steps,
    train_convex,
)
from cala.core.fakes import EpisodeDraw, EpisodePlan, FakePool, draw_episode, servable_shots
from cala.core.rows import Array, ClassRows
from cala.errors import DivergenceWarning, FallbackWarning
from cala.heads.base import Head
from cala.heads.base_data import BaseData, Scorer
from cala.heads.checks import check_number
from cala.heads.registry import ADAPTERS
from cala.registry import check_choice

# An episode keeps queries × fakes logits; these limits bound its memory for any number of classes.
MAX_FAKES, MAX_QUERIES = 400, 2000
MANY_SHOTS = (1, 2, 5, 10, 20)
MIN_PAIRS = 10
HELDOUT_SHARE = 0.2
BASE_POOL_PER_CLASS = 100
SANE_SHIFT = 1000.0  # far larger than any logit
SAMPLED = 2**17  # logits of an episode that are kept to fit the temperature


@dataclass(frozen=True)
class AdapterRecipe:
    """Settings of an adapter and its pseudo-incremental training.

    Parameters
    ----------
    adapter : str
        The kind, a name in `cala.core.adapters.ADAPTER_KINDS`.
    guarded : bool
        Use it only if held-out classes support it; see `cala.heads.auto.AutoHead`.
    host, metric : str
        The host and metric to use when the method is named without a host.
    inputs, tau, hidden, zero_start
        Settings of the MLP; see `cala.core.adapters.MLPAdapter`.
    clamp : bool
        Clamp inputs to the range of the classes that the adapter was trained on.
    gamma, loss, rho, mu
        Settings of Eq. 8 and 9; see `cala.core.cala.AdapterLoss`.
    objective, max_base_loss
        The criterion of a guarded recipe; see `cala.core.operating_point.choose_delta`.
    novel : int, optional
        How many novel classes to prepare for; None means 2B/3.
    way, shots, queries, base_queries
        See `cala.core.fakes.EpisodePlan`. With several values in `shots`, an adapter learns what
        the number of shots means.
    episodes, heldout_episodes : int
        Numbers of episodes, played once and kept; held-out ones use other pairs.
    epochs, steps, lr, optimiser
        For the MLP; linear adapters are solved by L-BFGS.
    ridges : tuple of float
        For linear adapters; the one that does best on held-out pairs is used.
    fake_pairs, fake_images, keep_spread
        The pool of fake classes, if they are mixed from embeddings.

    Examples
    --------
    >>> AdapterRecipe(gamma=5.0).plan(60).way
    5
    """

    adapter: str = "mlp"
    guarded: bool = False
    host: str = "nearest-mean"
    metric: str = "cosine"
    inputs: str = "sorted"
    tau: float = 1.0
    hidden: tuple[int, ...] = (64, 64)
    zero_start: bool = True
    clamp: bool = True
    gamma: float = 10.0
    loss: str = "balanced"
    rho: float = 0.0
    mu: float = 0.0
    objective: str = "accuracy"
    max_base_loss: float | None = None
    novel: int | None = None
    way: int = 5
    shots: tuple[int, ...] = (5,)
    queries: int = 15
    base_queries: int = 15
    episodes: int = 200
    heldout_episodes: int = 20
    epochs: int = 20
    steps: int = 50
    lr: float = 1e-3
    optimiser: str = "adam"
    ridges: tuple[float, ...] = (0.0,)
    fake_pairs: int = 600
    fake_images: int = 25
    keep_spread: bool = True

    def __post_init__(self) -> None:
        check_choice("adapter kind", self.adapter, ADAPTER_KINDS, "adapter")
        check_choice("adapter input", self.inputs, INPUTS, "inputs")
        check_choice("loss", self.loss, LOSSES)
        check_choice("optimiser", self.optimiser, OPTIMISERS)
        for name in ("novel", "way", "queries", "episodes", "epochs", "steps"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 1)
        check_number("shots", min(self.shots, default=0), 1)

    def make(self, n_base: int, rng: Generator) -> Adapter:
        """An untrained adapter for B base classes."""
        return ADAPTER_KINDS[self.adapter](self, n_base, rng)

    def plan(self, n_base: int) -> EpisodePlan:
        """The episode to aim for with B base classes, within `MAX_FAKES` and `MAX_QUERIES`."""
        novel = min(self.novel or max(1, round(2 * n_base / 3)), MAX_FAKES)
        way = max(1, min(self.way, n_base // 2, novel))
        queries = min(self.queries, max(1, MAX_QUERIES // novel))
        base_queries = min(self.base_queries, max(1, MAX_QUERIES // n_base))
        return EpisodePlan(way, max(1, round(novel / way)), self.shots, queries, base_queries)

    def as_la(self) -> AdapterRecipe:
        """LA for the same task: the fallback if the data do not allow more.

        >>> CALA.as_la() == LA
        True
        """
        task = "novel way shots queries base_queries fake_pairs fake_images keep_spread"
        return replace(LA, **{name: getattr(self, name) for name in task.split()})

    def to_json(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self).items()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> AdapterRecipe:
        known: dict[str, Any] = {f.name: values[f.name] for f in fields(cls) if f.name in values}
        return cls(**{**known, **{k: tuple(v) for k, v in known.items() if isinstance(v, list)}})


LA = AdapterRecipe(adapter="scalar", gamma=1.0, episodes=30, heldout_episodes=10)
CALA = AdapterRecipe()
CALA_LITERAL = AdapterRecipe(
    inputs="softmax", loss="literal", optimiser="sgd", zero_start=False, clamp=False
)
_LINEAR = replace(LA, adapter="summary", shots=MANY_SHOTS, ridges=(1e-4, 1e-3, 1e-2))
CALA_PLUS = replace(_LINEAR, host="calibrated-mean", metric="whitened")
AUTO = replace(LA, guarded=True, metric="auto", shots=MANY_SHOTS, episodes=20, heldout_episodes=20)
ADAPTERS.add("la", LA, "LA-fscil (Eq. 5): one learned shift for all novel classes")
ADAPTERS.add("cala", CALA, "CALA (Eq. 6-9): an MLP on similarity to base gives each its own")
ADAPTERS.add("cala-literal", CALA_LITERAL, "CALA as printed, to the letter: Eq. 9 diverges")
ADAPTERS.add("cala-plus", CALA_PLUS, "CALA with tightness and number of shots, linear, whitened")
ADAPTERS.add("auto", AUTO, "default: the simplest metric and shift that held-out classes support")


def train_adapter(
    host: Head, recipe: AdapterRecipe, data: BaseData, *, seed: int
) -> tuple[Adapter, AdapterRecipe, list[Episode]]:
    """Run Algorithm 1 on a host that was fitted to `data`.

    Returns the adapter, the recipe that the data allowed, and the episodes that judge it.
    """
    rng = np.random.default_rng(seed)
    recipe, episodes, heldout = play_fakes(host, recipe, data, rng)
    adapter = recipe.make(host.n_base, rng)
    adapter.calibrate([e.context for e in episodes])
    if not recipe.clamp:
        adapter.low, adapter.high = -np.inf, np.inf
    loss = AdapterLoss(recipe.gamma, recipe.loss, recipe.rho, recipe.mu)
    trainable = bool(data.queries.any())
    if trainable and adapter.linear:
        train_convex(adapter, episodes, heldout, loss, recipe.ridges)
    elif trainable:
        step = OPTIMISERS[recipe.optimiser](recipe.lr)
        train_by_steps(adapter, episodes, heldout, loss, rng, step, recipe.epochs, recipe.steps)
    judged = heldout or episodes
    mean = recipe.gamma * float(np.mean(np.concatenate([adapter(e.context) for e in judged])))
    if not abs(mean) < SANE_SHIFT:
        message = (
            f"the adapter diverged: its mean shift is {mean:.3g}, so new classes are never or "
            f"always predicted; loss={recipe.loss!r} has no minimum here, loss='balanced' has one"
        )
        warnings.warn(DivergenceWarning(message, "diverged"), stacklevel=3)
    return adapter, recipe, judged


def play_fakes(
    host: Head, recipe: AdapterRecipe, data: BaseData, rng: Generator
) -> tuple[AdapterRecipe, list[Episode], list[Episode]]:
    """Episodes of fake classes to learn from, and episodes of other pairs to judge by.

    Also returns the recipe that the data allow. Without base queries there is one episode of each.
    """
    scorers = data.scorers(host)
    fakes = data.fake_pool(recipe.fake_pairs, recipe.fake_images, rng, recipe.keep_spread)
    # A metric fitted to fewer rows than dimensions overfits to these rows and their mixtures.
    blind = len(scorers) > 1 and data.dim > len(data) - data.n_base and data.fakes is None
    asked = bool(data.queries.any())
    recipe = _affordable(recipe, fakes, asked, blind)
    learn, held = fakes.split(HELDOUT_SHARE, rng) if len(fakes) > 1 else (fakes, fakes)
    stages = [_Stage(scorer, data, (learn, held), rng) for scorer in scorers]
    stages = [stage for stage in stages if len(stage.rows)] or stages[:1]
    plan = recipe.plan(host.n_base)
    plan = plan if host.room is None else plan.within(host.room)
    counts = (recipe.episodes, recipe.heldout_episodes) if asked else (1, 1)
    episodes, heldout = (
        [stages[i % len(stages)].episode(part, plan, rng) for i in range(count)]
        for part, count in enumerate(counts)
    )
    return recipe, episodes, heldout


class _Stage:
    """Plays episodes on a head, with rows that it can score without bias, all in its metric.

    rows : base queries; pools : fake classes to learn from, and to judge by
    """

    def __init__(
        self, scorer: Scorer, data: BaseData, pools: tuple[FakePool, FakePool], rng: Generator
    ) -> None:
        self.head, self.leave_out = scorer.head, scorer.leave_out
        rows = scorer.rows.where(data.queries).draw(BASE_POOL_PER_CLASS, rng)
        self.rows = ClassRows(np.arange(len(rows)), rows.columns, rows.n_classes)
        self.queries = embedded_rows(self.head.embed, data.features, rows.order)
        self.base = normalise(self.head.prototypes[: self.head.n_base])
        self.pools = [pool.mapped(self._embed) for pool in pools]

    def _embed(self, features: Array) -> Array:
        return self.head.embed(features.astype(self.head.dtype, copy=False))

    def episode(self, part: int, plan: EpisodePlan, rng: Generator) -> Episode:
        """Teach fake classes to a fork of the head, and score fake and base queries with it."""
        pool, n_base = self.pools[part], self.head.n_base
        plan = plan.fitted(pool, n_base)
        draw = draw_episode(pool, plan, rng)
        base = self.rows.draw(plan.base_queries, rng).thinned(MAX_QUERIES, rng)
        fake = pool.features[draw.fakes[draw.query_of], draw.query_rows]
        members = base.columns if self.leave_out else np.full(len(base), -1)
        queries = Queries(
            np.concatenate([self.queries(base.order), fake]),
            np.concatenate([base.columns, n_base + draw.query_of]),
            np.concatenate([members, np.full(len(fake), -1)]),
        )
        sessions = self._sessions(pool, draw)
        return play(self.head, sessions, queries, self.base, sampled=SAMPLED * part)

    def _sessions(self, pool: FakePool, draw: EpisodeDraw) -> Iterator[Session]:
        """N fake classes at a time; all at once if the head's columns do not interact."""
        shots = pool.shots_at(draw.fakes[draw.shot_of], draw.shot_rows)
        arrival = draw.sessions[draw.shot_of] * (not self.head.traits.old_columns_stay)
        for session in np.unique(arrival):
            yield shots[arrival == session], draw.shot_of[arrival == session]


def _affordable(recipe: AdapterRecipe, fakes: FakePool, asked: bool, blind: bool) -> AdapterRecipe:
    """The largest adapter that the data can train; the fallback has all settings of LA.

    asked : whether there are base queries
    blind : whether the fake classes were mixed from rows that the metric overfits to
    """
    code, problem, aware = "", "", recipe.adapter != "scalar"
    instead = "one shift for all novel classes (LA) was learned instead"
    if not asked:
        code = "adapter_off"
        problem = "no base class has a second image to serve as a query: the adapter is off (β = 0)"
    elif aware and len(fakes) < MIN_PAIRS:
        code = "few_fakes"
        problem = f"{len(fakes)} fake classes; a class-aware adapter needs {MIN_PAIRS}: {instead}"
    elif aware and blind:
        code = "few_rows"
        problem = "fewer base rows than dimensions: embeddings mixed from them look too close "
        problem += f"when whitened, so {instead}; mix images (`fake`, `cala fit --fakes image`)"
    if problem:
        warnings.warn(FallbackWarning(problem, code), stacklevel=3)
        recipe = recipe.as_la()
    if not asked or max(recipe.shots) < fakes.images:
        return recipe
    kept = servable_shots(recipe.shots, fakes.images)
    if recipe.shots != MANY_SHOTS:  # MANY_SHOTS means as many as possible
        found, wanted = (", ".join(map(str, shots)) for shots in (kept, recipe.shots))
        problem = f"fake classes have {fakes.images} images each, and one must be a query: "
        problem += f"pseudo sessions have {found} shots instead of {wanted}"
        warnings.warn(FallbackWarning(problem, "fewer_shots"), stacklevel=3)
    return replace(recipe, shots=kept)
