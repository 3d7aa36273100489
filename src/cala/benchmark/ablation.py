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
    """Something that `cala ablate` can vary: a number, or one of several names.

    meaning : one line for people
    recipe : value, protocol -> what changes in the adapter's recipe; by default the field of the
        choice's own name
    names : the values, if they are names; else numbers from `least` on (`above`: without it;
        `whole`: whole ones)
    only : the kind of adapter that it acts on, empty for all
    """

    meaning: str
    recipe: Callable[[Any, Protocol], dict[str, Any]] | None = None
    names: Sequence[str] = ()
    least: float = -math.inf
    above: bool = False
    whole: bool = False
    only: str = ""

    def read(self, what: str, text: str) -> Any:
        """A value from its text."""
        if self.names:
            if text not in self.names:
                fix = f"give one of {', '.join(self.names)}"
                raise InputError(f"{what} {text!r}", fix, field="values")
            return text
        try:
            value = int(text) if self.whole else float(text)
        except ValueError:
            value = math.nan
        if not (value > self.least if self.above else value >= self.least) or math.isinf(value):
            kind = "whole number" if self.whole else "finite number"
            bound = f" {'above' if self.above else 'of at least'} {self.least:g}"
            fix = f"give a {kind}{bound * (self.least > -math.inf)}"
            raise InputError(f"{what} {text!r}", fix, field="values")
        return value


CHOICES: dict[str, Choice] = {
    "gamma": Choice("γ of Eq. 8 at inference, the adapter trained once at its usual γ"),
    "mu": Choice(
        "μ of Eq. 9, with ρ = 1, since μ acts through that term alone",
        lambda value, _: {"mu": value, "rho": 1.0},
    ),
    "rho": Choice("ρ of Eq. 9", least=0),
    "tau": Choice(
        "τ of softmax inputs, the only ones that it acts on",
        lambda value, _: {"tau": value, "inputs": "softmax"},
        least=0,
        above=True,
        only="mlp",
    ),
    "shots": Choice(
        "K of the pseudo sessions that the adapter learns from; real classes keep the protocol's",
        lambda value, _: {"shots": (value,)},
        least=1,
        whole=True,
    ),
    "sessions": Choice(
        "T̃, the number of pseudo sessions in an episode; the real ones stay the protocol's",
        lambda value, protocol: {"novel": value * protocol.way},
        least=1,
        whole=True,
    ),
    "queries": Choice(
        "query balance: base queries per class against 15 of each fake class; 0 leaves only fakes",
        lambda value, _: {"base_queries": value},
        least=0,
        whole=True,
    ),
    "inputs": Choice(
        f"what the adapter reads of the similarities: {', '.join(INPUTS)}",
        names=tuple(INPUTS),
        only="mlp",
    ),
    "loss": Choice(f"the reading of Eq. 9: {', '.join(LOSSES)}", names=tuple(LOSSES)),
    "optimiser": Choice(
        f"what takes Algorithm 1's steps: {', '.join(OPTIMISERS)}",
        names=tuple(OPTIMISERS),
        only="mlp",
    ),
    "start": Choice(
        "the MLP's last layer before training: zero (the plain classifier) or random",
        lambda value, _: {"zero_start": value == "zero"},
        ("zero", "random"),
        only="mlp",
    ),
    "clamp": Choice(
        "whether inputs stay within the range of the fake classes: yes, no",
        lambda value, _: {"clamp": value == "yes"},
        ("yes", "no"),
    ),
    "metric": Choice(f"the head's metric: {', '.join(METRICS)}", names=tuple(METRICS)),
}
ALSO_CALLED = {"K": "shots"}


def choice_name(what: str) -> str:
    """The name of a choice, by that or by another name."""
    name = ALSO_CALLED.get(what, what)
    check_choice("ablation", name, CHOICES, "what")
    return name


def ablation_configs(
    usual: RunConfig, what: str, values: Sequence[str], protocol: Protocol, retrain: bool = False
) -> dict[str, RunConfig]:
    """One configuration per value, by the value's text.

    retrain : for gamma, train again for each value instead of varying it at inference
    """
    what = choice_name(what)
    choice = CHOICES[what]
    if retrain and what != "gamma":
        raise InputError(
            f"--retrain is for gamma only; {what} is always trained again",
            "omit it",
            field="retrain",
        )
    for method in usual.methods:
        _check_acts(method, what, choice)
    configs = {}
    for text in values:
        value = choice.read(what, text)
        if what == "metric" or (what == "gamma" and not retrain):
            configs[text] = replace(usual, **{what: value})
        else:
            recipe = choice.recipe(value, protocol) if choice.recipe else {what: value}
            configs[text] = replace(usual, adapter={**usual.adapter, **recipe})
    return configs


def _check_acts(method: str, what: str, choice: Choice) -> None:
    """A choice that a method does not have would give the same row for every value."""
    _, adapter = split_name(method)
    if what == "metric":
        return
    if adapter is None:
        detail = f"{method} has no adapter whose {what} could vary"
        raise InputError(detail, f"try {method}+cala", field="method", code="no_adapter")
    kind = ADAPTERS[adapter].adapter
    if choice.only and kind != choice.only:
        detail = f"{method} has no setting {what}, which belongs to the MLP of cala"
        raise InputError(detail, "use --method cala", field="method", code="no_setting")


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
