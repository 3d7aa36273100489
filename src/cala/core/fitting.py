"""Training an adapter on scored episodes, with selection on held-out pairs (Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cala.core.adapters import Adapter
from cala.core.losses import cala_loss
from cala.core.pseudo import Episode
from cala.errors import InputError


@dataclass(frozen=True)
class Objective:
    """How an episode is judged: Eq. 9 in one of its readings."""

    gamma: float = 10.0
    kind: str = "balanced"
    rho: float = 0.0
    mu: float = 0.0

    def __call__(self, episode: Episode, beta: Tensor) -> Tensor:
        return cala_loss(
            episode.scores,
            beta,
            episode.context.similarity,
            gamma=self.gamma,
            kind=self.kind,
            rho=self.rho,
            mu=self.mu,
        )


@dataclass(frozen=True)
class FitResult:
    """What selection saw: the loss on held-out pairs per candidate, and which one was kept."""

    heldout: tuple[float, ...]
    kept: int


def fit_by_steps(
    adapter: Adapter,
    episodes: Sequence[Episode],
    heldout: Sequence[Episode],
    objective: Objective,
    *,
    generator: torch.Generator,
    epochs: int = 20,
    steps: int = 50,
    lr: float = 1e-3,
    optimiser: str = "adam",
) -> FitResult:
    """Algorithm 1: one optimiser step per episode; the epoch best on held-out pairs is kept.

    The untrained adapter is no candidate. Without held-out episodes the last epoch is kept.
    """
    step: torch.optim.Optimizer = (
        torch.optim.SGD(adapter.parameters(), lr=lr, momentum=0.9)
        if optimiser == "sgd"
        else torch.optim.Adam(adapter.parameters(), lr=lr)
    )
    inputs = [adapter.inputs(e.context) for e in episodes]
    judged: list[float] = []
    states: list[dict[str, Tensor]] = []
    for _ in range(epochs):
        for index in torch.randint(len(episodes), (steps,), generator=generator).tolist():
            step.zero_grad(set_to_none=True)
            objective(episodes[index], adapter.score(inputs[index])).backward()
            step.step()
        judged.append(mean_loss(adapter, heldout, objective))
        states.append({k: v.clone() for k, v in adapter.state_dict().items()})
    kept = _best(judged) if heldout else epochs - 1
    adapter.load_state_dict(states[kept])
    return FitResult(tuple(judged), kept)


def fit_convex(
    adapter: Adapter,
    episodes: Sequence[Episode],
    heldout: Sequence[Episode],
    objective: Objective,
    *,
    ridges: Sequence[float] = (0.0,),
) -> FitResult:
    """L-BFGS on all episodes at once, for adapters that are linear in their weights.

    The problem is convex, so there is one answer per ridge; the ridge best on held-out pairs is
    kept. The ridge acts on every weight but the offset (the parameter named `bias` or `alpha`).
    """
    inputs = [adapter.inputs(e.context) for e in episodes]
    weights = [p for name, p in adapter.named_parameters() if name not in ("bias", "alpha")]
    judged: list[float] = []
    states: list[dict[str, Tensor]] = []
    for ridge in ridges:
        solver = torch.optim.LBFGS(
            adapter.parameters(), max_iter=60, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
        )

        def closure(solver: torch.optim.LBFGS = solver, ridge: float = ridge) -> Tensor:
            solver.zero_grad()
            losses = [objective(e, adapter.score(x)) for e, x in zip(episodes, inputs, strict=True)]
            loss = torch.stack(losses).mean()
            if ridge:
                loss = loss + ridge * sum(w.square().sum() for w in weights)
            loss.backward()
            return loss.detach()

        solver.step(closure)
        judged.append(mean_loss(adapter, heldout or episodes, objective))
        states.append({k: v.clone() for k, v in adapter.state_dict().items()})
    kept = _best(judged)
    adapter.load_state_dict(states[kept])
    return FitResult(tuple(judged), kept)


def _best(losses: Sequence[float]) -> int:
    """The first of the lowest losses; NaN is no candidate."""
    numbers = [i for i, loss in enumerate(losses) if not math.isnan(loss)]
    if not numbers:
        raise InputError(
            "the adapter's training diverged: its loss on held-out pairs is NaN; use a lower lr or "
            "loss='balanced'"
        )
    return min(numbers, key=losses.__getitem__)


@torch.no_grad()
def mean_loss(adapter: Adapter, episodes: Sequence[Episode], objective: Objective) -> float:
    """Mean objective over episodes; NaN without any."""
    if not episodes:
        return float("nan")
    return float(torch.stack([objective(e, adapter(e.context)) for e in episodes]).mean())
