"""One choice of an adapter, varied."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cala.benchmark.config import RunConfig
from cala.benchmark.runner import at_gamma, fit_configured
from cala.core.adapters import INPUTS, OPTIMISERS
from cala.core.cala import LOSSES
from cala.core.metric import METRICS
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol
from cala.errors import InputError
from cala.heads import ADAPTERS, Head
from cala.heads.factory import split_name
from cala.registry import check_choice


@dataclass(frozen=True)
class Choice:
    """Something that `cala ablate` can vary.

    meaning : one line for people
    read : a value from its text; ValueError says what is wanted
    recipe : value, protocol -> what changes in the adapter's recipe
    only : the kind of adapter that it acts on, empty for all
    """

    meaning: str
    read: Callable[[str], Any]
    recipe: Callable[[Any, Protocol], dict[str, Any]] = lambda value, protocol: {}
    only: str = ""


def _number(least: float, strict: bool = False) -> Callable[[str], float]:
    def read(text: str) -> float:
        wanted = f"a number {'above' if strict else 'of at least'} {least:g}"
        try:
            value = float(text)
        except ValueError:
            raise ValueError(wanted if least > -math.inf else "a number") from None
        if not math.isfinite(value) or value < least or (strict and value == least):
            raise ValueError(wanted if least > -math.inf else "a finite number")
        return value

    return read


def _count(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ValueError(f"a whole number of at least {least}")
        return int(text)

    return read


def _one_of(known: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in known:
            raise ValueError(f"one of {', '.join(known)}")
        return text

    return read


CHOICES: dict[str, Choice] = {
    "gamma": Choice(
        "γ of Eq. 8 at inference, the adapter trained once at its usual γ",
        _number(-math.inf),
        lambda value, _: {"gamma": value},
    ),
    "mu": Choice(
        "μ of Eq. 9, with ρ = 1, since μ acts through that term alone",
        _number(-math.inf),
        lambda value, _: {"mu": value, "rho": 1.0},
    ),
    "rho": Choice("ρ of Eq. 9", _number(0), lambda value, _: {"rho": value}),
    "tau": Choice(
        "τ of softmax inputs, the only ones that it acts on",
        _number(0, strict=True),
        lambda value, _: {"tau": value, "inputs": "softmax"},
        only="mlp",
    ),
    "shots": Choice(
        "K of the pseudo sessions that the adapter learns from; real classes keep the protocol's",
        _count(1),
        lambda value, _: {"shots": (value,)},
    ),
    "sessions": Choice(
        "T̃, the number of pseudo sessions in an episode; the real ones stay the protocol's",
        _count(1),
        lambda value, protocol: {"novel": value * protocol.way},
    ),
    "queries": Choice(
        "query balance: base queries per class against 15 of each fake class; 0 leaves only fakes",
        _count(0),
        lambda value, _: {"base_queries": value},
    ),
    "inputs": Choice(
        f"what the adapter reads of the similarities: {', '.join(INPUTS)}",
        _one_of(list(INPUTS)),
        lambda value, _: {"inputs": value},
        only="mlp",
    ),
    "loss": Choice(
        f"the reading of Eq. 9: {', '.join(LOSSES)}",
        _one_of(list(LOSSES)),
        lambda value, _: {"loss": value},
    ),
    "optimiser": Choice(
        f"what takes Algorithm 1's steps: {', '.join(OPTIMISERS)}",
        _one_of(list(OPTIMISERS)),
        lambda value, _: {"optimiser": value},
        only="mlp",
    ),
    "start": Choice(
        "the MLP's last layer before training: zero (the plain classifier) or random",
        _one_of(["zero", "random"]),
        lambda value, _: {"zero_start": value == "zero"},
        only="mlp",
    ),
    "clamp": Choice(
        "whether inputs stay within the range of the fake classes: yes, no",
        _one_of(["yes", "no"]),
        lambda value, _: {"clamp": value == "yes"},
    ),
    "metric": Choice(f"the head's metric: {', '.join(METRICS)}", _one_of(list(METRICS))),
}
ALSO_CALLED = {"K": "shots"}


def choice_name(what: str) -> str:
    """The name of a choice, by that or by another name."""
    name = ALSO_CALLED.get(what, what)
    check_choice("ablation", name, CHOICES)
    return name


def ablation_configs(
    usual: RunConfig, what: str, values: Sequence[str], protocol: Protocol, retrain: bool = False
) -> dict[str, RunConfig]:
    """One configuration per value, by the value's text.

    retrain : for gamma, train anew for each value instead of varying it at inference
    """
    choice = CHOICES[choice_name(what)]
    if retrain and what != "gamma":
        raise InputError(f"--retrain is for gamma: {what} is always trained anew")
    for method in usual.methods:
        _check_acts(method, what, choice)
    configs = {}
    for text in values:
        try:
            value = choice.read(text)
        except ValueError as error:
            raise InputError(f"{what} {text!r}: give {error}") from None
        if what == "metric":
            configs[text] = replace(usual, metric=value)
        elif what == "gamma" and not retrain:
            configs[text] = replace(usual, gamma=value)
        else:
            recipe = choice.recipe(value, protocol)
            configs[text] = replace(usual, adapter={**usual.adapter, **recipe})
    return configs


def _check_acts(method: str, what: str, choice: Choice) -> None:
    """A choice that a method does not have would give the same row for every value."""
    _, adapter = split_name(method)
    if what == "metric":
        return
    if adapter is None:
        raise InputError(f"{method} has no adapter whose {what} could vary: try {method}+cala")
    kind = ADAPTERS[adapter].adapter
    if choice.only and kind != choice.only:
        raise InputError(f"{what} does nothing in {method}: it is for the MLP of cala")


class TrainedOnce:
    """Fits for `run_cells`: one training per method and seed, whatever γ a configuration asks.

    Only for configurations that differ in nothing but γ at inference.
    """

    def __init__(self) -> None:
        self._heads: dict[tuple[str, int], Head] = {}

    def __call__(
        self, config: RunConfig, method: str, seed: int, data: Embeddings, protocol: Protocol
    ) -> Head:
        if (method, seed) not in self._heads:
            usual = replace(config, gamma=None)
            self._heads[method, seed] = fit_configured(usual, method, seed, data, protocol)
        return at_gamma(self._heads[method, seed], config.gamma)
