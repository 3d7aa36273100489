"""A study: runs that can be compared, on the same data, protocol and queries."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cala.files import shown
from cala.records import Record
from cala.reports.runs import Artifact, Headroom, Run
from cala.results import Results
from cala.statistics import Estimate

NOTHING = Estimate(math.nan, math.nan, 0)

#: Hosts of adapters that are named alone.
OWN_HOSTS = {
    "la": "nearest-mean",
    "cala": "nearest-mean",
    "cala-literal": "nearest-mean",
    "cala-plus": "calibrated-mean",
    "auto": "nearest-mean",
}


@dataclass
class Study:
    """One data set under one protocol: all methods of the runs given for it.

    results : of methods, named `run: method` where runs share names
    artifacts, costs : by the same names
    gammas : (method, γ at inference) -> the name in `gamma_results`
    """

    runs: list[Run]
    results: Results
    artifacts: dict[str, Artifact]
    gamma_results: Results
    costs: dict[str, dict[str, float]] = field(default_factory=dict)
    gammas: dict[tuple[str, float], str] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:
        return self.runs[0].config

    @property
    def dataset(self) -> str:
        return shown(self.config.get("dataset") or self.runs[0].path.name)

    @property
    def split(self) -> str:
        return shown(self.config.get("split", "test"))

    @property
    def sessions(self) -> int:
        return self.runs[0].sessions

    @property
    def n_classes(self) -> int:
        return max(
            (r.n_classes for r in self.results.records if r.session == self.sessions), default=0
        )

    @property
    def n_base(self) -> int:
        return max((r.n_classes for r in self.results.records if r.session == 0), default=0)

    @property
    def headroom(self) -> dict[str, Headroom]:
        """By metric, of the first run that has it."""
        held: dict[str, Headroom] = {}
        for run in self.runs:
            held = {**run.headroom, **held}
        return held

    @property
    def methods(self) -> list[str]:
        return self.results.methods

    @property
    def draws(self) -> list[str]:
        """Random draws, for intervals; the canonical one where there are no others."""
        return self.results.random_draws() or self.results.draws

    @property
    def reference(self) -> str:
        """What gains are counted from: the first method."""
        return self.methods[0]

    @property
    def focus(self) -> str:
        """The method whose before and after are shown: the headline's, which is the last listed.

        Where that one has no adapter or no artifact, the last that has.
        """
        drawn = [m for m in self.methods if m in self.artifacts]
        adapted = [m for m in drawn if self.adapter(m)]
        return (adapted or drawn or self.methods)[-1]

    def host(self, method: str) -> str | None:
        """The method of this study that `method` is without its adapter, in the same metric."""
        artifact = self.artifacts.get(method)
        meta = artifact.meta if artifact else {}
        name = meta.get("host") if meta.get("adapter") else host_of(method)
        found = _same_run(method, name) if name else None
        if found not in self.methods or found == method:
            return None
        other = self.artifacts.get(str(found))
        metrics = {a.meta.get("metric") for a in (artifact, other) if a and a.meta.get("metric")}
        return str(found) if len(metrics) <= 1 else None

    def per_session(self, method: str, column: str) -> list[Estimate]:
        """Sessions 0 to T over the study's draws; nothing where the method has none of them."""
        found = self.results.per_session(method, column, self.draws)
        return found or [NOTHING] * (self.sessions + 1)

    def gains(self, method: str, reference: str) -> list[Estimate]:
        """Accuracy above a reference in sessions 0 to T, paired on the draws that both have."""
        found = self.results.session_differences(method, reference, "accuracy", self.draws)
        return found or [NOTHING] * (self.sessions + 1)

    def adapter(self, method: str) -> str | None:
        artifact = self.artifacts.get(method)
        named = artifact.meta.get("adapter") if artifact else None
        return str(named) if named else adapter_of(method)


def make_studies(runs: Sequence[Run]) -> list[Study]:
    """Runs grouped by data set, protocol, queries and embeddings; those without records dropped."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.records:
            groups.setdefault(_key(run), []).append(run)
    return [_study(group) for group in groups.values()]


def adapter_of(method: str) -> str | None:
    """The adapter that a name ends in.

    >>> adapter_of("cala"), adapter_of("teen+la"), adapter_of("teen")
    ('cala', 'la', None)
    """
    name = method.rpartition(": ")[2]
    return name.rpartition("+")[2] if "+" in name or name in OWN_HOSTS else None


def host_of(method: str) -> str | None:
    """The same method without its adapter; None if it has none.

    >>> host_of("teen+cala"), host_of("cala"), host_of("teen")
    ('teen', 'nearest-mean', None)
    """
    name = method.rpartition(": ")[2]
    return name.rpartition("+")[0] or OWN_HOSTS.get(name)


def _study(runs: list[Run]) -> Study:
    plain = [r for r in runs if _gamma(r) is None]
    varied = [r for r in runs if _gamma(r) is not None]
    names = [m for run in plain for m in _methods(run)]
    records: list[Record] = []
    artifacts: dict[str, Artifact] = {}
    costs: dict[str, dict[str, float]] = {}
    for run in plain or varied:
        for method, own in _methods(run).items():
            alone = bool(plain) and names.count(method) == 1
            name = method if alone else f"{shown(run.path.name)}: {method}"
            records += [replace(r, method=name) for r in own]
            if method in run.artifacts:
                artifacts[name] = run.artifacts[method]
            if method in run.costs:
                costs[name] = run.costs[method]
    gammas: dict[tuple[str, float], str] = {}
    gamma_records: list[Record] = []
    for run in varied:
        gamma = _gamma(run) or 0.0
        for method, own in _methods(run).items():
            gammas[method, gamma] = name = f"{method}, γ={gamma:g}"
            gamma_records += [replace(r, method=name) for r in own]
    return Study(runs, Results(records), artifacts, Results(gamma_records), costs, gammas)


def _methods(run: Run) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in run.records:
        found.setdefault(record.method, []).append(record)
    return found


def _gamma(run: Run) -> float | None:
    """γ at inference where the run sets it."""
    gamma = run.config.get("gamma")
    return float(gamma) if isinstance(gamma, int | float) and math.isfinite(gamma) else None


def _key(run: Run) -> str:
    config = run.config
    fingerprint = (config.get("embeddings") or {}).get("fingerprint")
    parts = [config.get("dataset") or run.path.name, config.get("protocol"), config.get("split")]
    return json.dumps([*parts, fingerprint], sort_keys=True, default=str)


def _same_run(method: str, name: str) -> str:
    """`name` as it is called beside `method`: with the same prefix of its run."""
    prefix, found, _ = method.rpartition(": ")
    return f"{prefix}: {name}" if found else name
