"""One choice of an adapter, varied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cala.benchmark.config import RunConfig
from cala.data.protocol import Protocol
from cala.errors import InputError
from cala.registry import check_choice

#: What `cala ablate` can vary -> how its values are read.
CHOICES: dict[str, Callable[[str], Any]] = {
    "gamma": float,
    "mu": float,
    "rho": float,
    "tau": float,
    "shots": int,
    "sessions": int,
    "queries": int,
    "inputs": str,
    "metric": str,
}


def ablation_configs(
    usual: RunConfig, what: str, values: Sequence[str], protocol: Protocol, retrain: bool = False
) -> dict[str, RunConfig]:
    """One configuration per value, by the value's text.

    gamma : at inference, the adapter trained once at its usual value; `retrain` for the other way
    mu : with ρ = 1, since μ only acts through that term
    tau : with softmax inputs, the only ones that it acts on
    shots : K of the pseudo sessions; sessions : T̃, the number of pseudo sessions
    queries : base queries per class against 15 of each fake class; 0 leaves only fake ones
    """
    check_choice("ablation", what, CHOICES)
    if retrain and what != "gamma":
        raise InputError(f"--retrain is for gamma: {what} is always trained anew")
    configs = {}
    for text in values:
        try:
            value = CHOICES[what](text)
        except ValueError:
            raise InputError(f"{what} {text!r} is not a number") from None
        configs[text] = _varied(usual, what, value, protocol, retrain)
    return configs


def _varied(
    usual: RunConfig, what: str, value: Any, protocol: Protocol, retrain: bool
) -> RunConfig:
    if what == "metric":
        return replace(usual, metric=value)
    if what == "gamma" and not retrain:
        return replace(usual, gamma=value)
    recipe = {
        "gamma": {"gamma": value},
        "mu": {"mu": value, "rho": 1.0},
        "rho": {"rho": value},
        "tau": {"tau": value, "inputs": "softmax"},
        "shots": {"shots": (value,)},
        "sessions": {"novel": value * protocol.way if isinstance(value, int) else None},
        "queries": {"base_queries": value},
        "inputs": {"inputs": value},
    }[what]
    return replace(usual, adapter={**usual.adapter, **recipe})
