"""A run's configuration, resolved: everything that decides its numbers."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cala.benchmark.sources import PerHost, Source, host_of
from cala.core.metric import METRICS
from cala.data.protocol import Protocol
from cala.errors import InputError
from cala.heads import HEADS
from cala.heads.factory import split_name
from cala.records import SCHEMA, Cell
from cala.registry import check_choice
from cala.systems.published import published
from cala.version import __version__

SPLITS = ("test", "dev")
PROTOCOL = ("name", "base", "way", "shot", "sessions")
PACKAGES = ("torch", "numpy", "scikit-learn")


@dataclass(frozen=True)
class RunConfig:
    """What to run.

    split : `test`, or `dev` for training images that are neither shots nor learned from
    metric, scale : for every method; None takes each method's own
    adapter : changes to the adapters' recipes
    gamma : γ at inference; None is the value trained with
    few_draws : draws of methods that train their encoder in sessions; None for all
    full_sessions : such sessions have their published length, instead of a short one, and those
        of nc-fscil their published rate
    """

    dataset: str
    methods: tuple[str, ...]
    draws: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    split: str = "test"
    metric: str | None = None
    scale: float | None = None
    gamma: float | None = None
    adapter: dict[str, Any] = field(default_factory=dict)
    few_draws: tuple[str, ...] | None = None
    full_sessions: bool = False

    def __post_init__(self) -> None:
        check_choice("split", self.split, SPLITS)
        if not self.methods or not self.draws or not self.seeds:
            raise InputError(
                "a run needs at least one method, one draw and one seed", code="empty_run"
            )
        for name in self.methods:
            split_name(name)  # raises for an unknown name
        if self.metric is not None:
            check_choice("metric", self.metric, METRICS)

    def draws_of(self, method: str) -> tuple[str, ...]:
        if self.few_draws is not None and changes_encoder(method):
            return self.few_draws
        return self.draws

    def shown_draw(self, method: str) -> str:
        """The draw that a method's figures show: the canonical one, or the first."""
        names = self.draws_of(method)
        return "canonical" if "canonical" in names else names[0]

    @property
    def cells(self) -> set[Cell]:
        return {(m, d, s) for m in self.methods for d in self.draws_of(m) for s in self.seeds}

    def _stated(self) -> dict[str, Any]:
        """Fields; what is about training in sessions only where a method does that."""
        found = asdict(self)
        trained = [method for method in self.methods if changes_encoder(method)]
        if trained:
            return {**found, "trained_in_sessions": trained}
        del found["few_draws"]
        if not any(published(host_of(m), self.dataset).session for m in self.methods):
            del found["full_sessions"]
        return found

    def resolved(self, protocol: Protocol, default: Source, per_host: PerHost) -> dict[str, Any]:
        """As written to `config.json`."""
        own = {host: source.described() for host, source in sorted(per_host.items())}
        stated = {key: getattr(protocol, key) for key in PROTOCOL}
        return {
            "schema": SCHEMA,
            **self._stated(),
            "protocol": {**stated, **({"order": list(protocol.order)} if protocol.order else {})},
            "selection": "validation",
            "rows": default.rows,
            "embeddings": default.described(),
            **({"own_embeddings": own} if own else {}),
            "versions": {"cala": __version__, **{name: _version(name) for name in PACKAGES}},
            "machine": {"platform": platform.platform(), "cpus": os.cpu_count()},
        }


def changes_encoder(method: str) -> bool:
    """Whether a method's host trains its encoder in sessions."""
    return HEADS[host_of(method)].traits.changes_encoder


def digest(resolved: dict[str, Any]) -> str:
    """Ten hex digits that tell resolved configurations apart, for folder names."""
    deciding = {k: v for k, v in resolved.items() if k not in ("rows", "versions", "machine")}
    return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:10]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
