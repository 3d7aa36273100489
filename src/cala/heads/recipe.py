"""How an adapter is built and trained: plain data, one recipe per name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cala.core.adapters import INPUTS
from cala.core.losses import LOSSES
from cala.core.pseudo import EpisodePlan
from cala.errors import InputError
from cala.heads.registry import ADAPTERS
from cala.registry import check_choice

KINDS = ("scalar", "mlp", "summary")

# An episode keeps queries × fakes logits; these bound its memory however many classes there are.
MAX_FAKES = 400
MANY_SHOTS = (1, 2, 5, 10, 20)
MAX_QUERIES = 2000


@dataclass(frozen=True)
class AdapterRecipe:
    """An adapter and its pseudo-incremental training.

    adapter : `scalar` (LA), `mlp` (the paper's), `summary` (linear on a few numbers)
    inputs, tau, hidden : of the MLP, see `MLPAdapter`
    gamma, loss, rho, mu : Eq. 8 and 9, see `cala_loss`
    novel : how many novel classes to prepare for; None expects 2B/3
    way, shots, queries, base_queries : see `EpisodePlan`
    episodes, heldout_episodes : scored once and kept, the second from pairs that the first lack
    epochs, steps, lr, optimiser : for the MLP; adapters that are linear are solved by L-BFGS
    ridges : for linear adapters, the one best on held-out pairs is taken
    fake_pairs, fake_images, keep_spread : the pool, where fakes are mixed from embeddings
    """

    adapter: str = "mlp"
    inputs: str = "sorted"
    tau: float = 1.0
    hidden: tuple[int, ...] = (64, 64)
    gamma: float = 10.0
    loss: str = "balanced"
    rho: float = 0.0
    mu: float = 0.0
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
        check_choice("optimiser", self.optimiser, ("adam", "sgd"))
        if not self.shots or min(self.shots) < 1:
            raise InputError(f"shots are {self.shots}: give numbers of shots, each at least 1")
        for name in ("novel", "way", "queries", "episodes", "epochs", "steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}: give at least 1")

    def plan(self, n_base: int) -> EpisodePlan:
        """The episode to aim for with B base classes, within `MAX_FAKES` and `MAX_QUERIES`."""
        novel = min(self.novel or max(1, round(2 * n_base / 3)), MAX_FAKES)
        way = max(1, min(self.way, n_base // 2, novel))
        sessions = max(1, round(novel / way))
        queries = min(self.queries, max(1, MAX_QUERIES // novel))
        base_queries = min(self.base_queries, max(1, MAX_QUERIES // n_base))
        return EpisodePlan(way, sessions, self.shots, queries, base_queries)

    def to_json(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self).items()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> AdapterRecipe:
        given: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
        }
        return cls(**given)


LA = ADAPTERS.register("la", "LA-fscil (Eq. 5): one learned shift for all novel classes")(
    AdapterRecipe(adapter="scalar", gamma=1.0, episodes=30, heldout_episodes=10)
)
CALA = ADAPTERS.register("cala", "CALA (Eq. 6-9): an MLP on similarity to base gives each its own")(
    AdapterRecipe()
)
CALA_PLUS = ADAPTERS.register(
    "cala-plus", "CALA with shot tightness and shot count, linear, in the whitened metric"
)(
    replace(
        LA,
        adapter="summary",
        gamma=1.0,
        shots=MANY_SHOTS,
        ridges=(1e-4, 1e-3, 1e-2),
    )
)


def as_la(recipe: AdapterRecipe) -> AdapterRecipe:
    """LA's recipe for the same task: every number of LA's own, but for those that were chosen.

    A number that differs from the registered recipe of the same kind was chosen; the shots
    always were.

    >>> as_la(CALA) == LA
    True
    """
    if recipe.adapter == LA.adapter:
        return recipe
    registered = (ADAPTERS[name] for name in ADAPTERS)
    usual = vars(next((r for r in registered if r.adapter == recipe.adapter), recipe))
    chosen = {k: v for k, v in vars(recipe).items() if v != usual[k]}
    return replace(LA, **{**chosen, "shots": recipe.shots})
