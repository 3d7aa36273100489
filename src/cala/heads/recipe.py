"""How an adapter is built and trained: plain data, one recipe per name."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from cala.core.adapters import (
    INPUTS,
    KINDS,
    OPTIMISERS,
    Adapter,
    MLPAdapter,
    NoAdapter,
    ScalarAdapter,
    SummaryAdapter,
)
from cala.core.cala import LOSSES
from cala.core.pseudo import EpisodePlan
from cala.errors import InputError
from cala.heads.registry import ADAPTERS
from cala.registry import check_choice

# An episode keeps queries × fakes logits; these bound its memory however many classes there are.
MAX_FAKES = 400
MANY_SHOTS = (1, 2, 5, 10, 20)
MAX_QUERIES = 2000
#: What a recipe says about the task rather than about the adapter.
TASK = (
    "novel",
    "way",
    "shots",
    "queries",
    "base_queries",
    "fake_pairs",
    "fake_images",
    "keep_spread",
)


@dataclass(frozen=True)
class AdapterRecipe:
    """An adapter and its pseudo-incremental training.

    adapter : its kind, a name in `cala.core.adapters.KINDS`
    guarded : whether it is used only where held-out classes support it, see `AutoHead`
    host, metric : what it stands on where its name is given alone
    inputs, tau, hidden, zero_start : of the MLP, see `MLPAdapter`
    clamp : inputs stay within the range of the classes it was trained on
    gamma, loss, rho, mu : Eq. 8 and 9, see `AdapterLoss`
    objective, max_base_loss : what a guarded recipe is chosen by, see `choose_delta`
    novel : how many novel classes to prepare for; None expects 2B/3
    way, shots, queries, base_queries : see `EpisodePlan`; with several numbers of shots an adapter
        learns what the number of shots means
    episodes, heldout_episodes : played once and kept, the second from pairs that the first lack
    epochs, steps, lr, optimiser : for the MLP; adapters that are linear are solved by L-BFGS
    ridges : for linear adapters, the one best on held-out pairs is taken
    fake_pairs, fake_images, keep_spread : the pool, where fakes are mixed from embeddings
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
        check_choice("adapter kind", self.adapter, KINDS)
        check_choice("adapter input", self.inputs, INPUTS)
        check_choice("loss", self.loss, LOSSES)
        check_choice("optimiser", self.optimiser, OPTIMISERS)
        if not self.shots or min(self.shots) < 1:
            raise InputError(f"shots are {self.shots}: give numbers of shots, each at least 1")
        for name in ("novel", "way", "queries", "episodes", "epochs", "steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}: give at least 1")

    def make(self, n_base: int, rng: np.random.Generator) -> Adapter:
        """An untrained adapter for B base classes."""
        return KINDS[self.adapter](self, n_base, rng)

    def plan(self, n_base: int) -> EpisodePlan:
        """The episode to aim for with B base classes, within `MAX_FAKES` and `MAX_QUERIES`."""
        novel = min(self.novel or max(1, round(2 * n_base / 3)), MAX_FAKES)
        way = max(1, min(self.way, n_base // 2, novel))
        sessions = max(1, round(novel / way))
        queries = min(self.queries, max(1, MAX_QUERIES // novel))
        base_queries = min(self.base_queries, max(1, MAX_QUERIES // n_base))
        return EpisodePlan(way, sessions, self.shots, queries, base_queries)

    def as_la(self) -> AdapterRecipe:
        """LA for the same task: what is learned where the data allow no more.

        >>> CALA.as_la() == LA
        True
        """
        return replace(LA, **{name: getattr(self, name) for name in TASK})

    def to_json(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self).items()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> AdapterRecipe:
        known = {field.name for field in fields(cls)}
        given: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items() if k in known
        }
        return cls(**given)


@KINDS.register("none", "no shift")
def _none(recipe: AdapterRecipe, n_base: int, rng: np.random.Generator) -> Adapter:
    return NoAdapter()


@KINDS.register("scalar", "one shift for all classes")
def _scalar(recipe: AdapterRecipe, n_base: int, rng: np.random.Generator) -> Adapter:
    return ScalarAdapter()


@KINDS.register("mlp", "the paper's network on similarity to base")
def _mlp(recipe: AdapterRecipe, n_base: int, rng: np.random.Generator) -> Adapter:
    return MLPAdapter(
        n_base,
        rng=rng,
        inputs=recipe.inputs,
        tau=recipe.tau,
        hidden=recipe.hidden,
        zero_start=recipe.zero_start,
    )


@KINDS.register("summary", "linear on a few numbers")
def _summary(recipe: AdapterRecipe, n_base: int, rng: np.random.Generator) -> Adapter:
    return SummaryAdapter(n_base)


LA = ADAPTERS.register("la", "LA-fscil (Eq. 5): one learned shift for all novel classes")(
    AdapterRecipe(adapter="scalar", gamma=1.0, episodes=30, heldout_episodes=10)
)
CALA = ADAPTERS.register("cala", "CALA (Eq. 6-9): an MLP on similarity to base gives each its own")(
    AdapterRecipe()
)
CALA_LITERAL = ADAPTERS.register(
    "cala-literal", "the paper to the letter, Eq. 9 as printed included, which diverges"
)(AdapterRecipe(inputs="softmax", loss="literal", optimiser="sgd", zero_start=False, clamp=False))
CALA_PLUS = ADAPTERS.register(
    "cala-plus", "CALA with shot tightness and shot count, linear, in the whitened metric"
)(
    replace(
        LA,
        adapter="summary",
        host="calibrated-mean",
        metric="whitened",
        shots=MANY_SHOTS,
        ridges=(1e-4, 1e-3, 1e-2),
    )
)
AUTO = ADAPTERS.register(
    "auto", "the default: the simplest metric and shift that held-out classes bear out"
)(replace(LA, guarded=True, metric="auto", shots=MANY_SHOTS, episodes=20, heldout_episodes=20))
