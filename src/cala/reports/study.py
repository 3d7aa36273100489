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
from cala.statistics import Interval

_NOTHING = Interval(math.nan, math.nan, 0)

#: Hosts of adapters that are named alone.
OWN_HOSTS = {
    **dict.fromkeys(("la", "cala", "cala-literal", "auto"), "nearest-mean"),
    "cala-plus": "calibrated-mean",
}


@dataclass
class Study:
    """One data set under one protocol: all methods of the runs given for it.

    results : of methods, named `run: method` where runs share names
    artifacts, costs : by the same names
    """

    runs: list[Run]
    results: Results
    artifacts: dict[str, Artifact]
    costs: dict[str, dict[str, float]] = field(default_factory=dict)

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
        return max(r.n_classes for r in self.results.records)

    @property
    def n_base(self) -> int:
        return min(r.n_classes for r in self.results.records)

    @property
    def headroom(self) -> dict[str, Headroom]:
        """By metric, of the first run that has it."""
        return {m: found for run in reversed(self.runs) for m, found in run.headroom.items()}

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
        run, host, _ = split_method(method)
        found = run + str(meta.get("host") or host)
        if found not in self.methods or found == method:
            return None
        other = self.artifacts.get(found)
        metrics = {a.meta.get("metric") for a in (artifact, other) if a and a.meta.get("metric")}
        return found if len(metrics) <= 1 else None

    def per_session(self, method: str, column: str) -> list[Interval]:
        """Sessions 0 to T over the study's draws; nothing where the method has none of them."""
        found = self.results.per_session(method, column, self.draws)
        return found or [_NOTHING] * (self.sessions + 1)

    def gains(self, method: str, reference: str) -> list[Interval]:
        """Accuracy above a reference in sessions 0 to T, paired on the draws that both have."""
        found = self.results.session_differences(method, reference, "accuracy", self.draws)
        return found or [_NOTHING] * (self.sessions + 1)

    def adapter(self, method: str) -> str | None:
        artifact = self.artifacts.get(method)
        named = artifact.meta.get("adapter") if artifact else None
        return str(named) if named else split_method(method)[2]


def make_studies(runs: Sequence[Run]) -> list[Study]:
    """Runs grouped by data set, protocol, queries and embeddings; those without records dropped."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.records:
            groups.setdefault(_key(run), []).append(run)
    return [_study(group) for group in groups.values()]


def split_method(method: str) -> tuple[str, str, str | None]:
    """The prefix of its run, the host and the adapter in a method's name.

    >>> split_method("a: teen+la"), split_method("cala"), split_method("teen")
    (('a: ', 'teen', 'la'), ('', 'nearest-mean', 'cala'), ('', 'teen', None))
    """
    run, found, name = method.rpartition(": ")
    host, plus, adapter = name.rpartition("+")
    if plus:
        return run + found, host, adapter
    return run + found, OWN_HOSTS.get(name, name), name if name in OWN_HOSTS else None


def _study(runs: list[Run]) -> Study:
    """Runs that vary γ at inference count as methods only where there are no others."""
    main = [run for run in runs if run.gamma is None]
    names = [method for run in main for method in run.methods]
    records: list[Record] = []
    artifacts: dict[str, Artifact] = {}
    costs: dict[str, dict[str, float]] = {}
    for run in main or runs:
        for method, own in run.methods.items():
            name = method if names.count(method) == 1 else f"{shown(run.path.name)}: {method}"
            records += [replace(r, method=name) for r in own]
            if method in run.artifacts:
                artifacts[name] = run.artifacts[method]
            if method in run.costs:
                costs[name] = run.costs[method]
    return Study(runs, Results(records), artifacts, costs)


def _key(run: Run) -> str:
    config = run.config
    fingerprint = (config.get("embeddings") or {}).get("fingerprint")
    parts = [config.get("dataset") or run.path.name, config.get("protocol"), config.get("split")]
    return json.dumps([*parts, fingerprint], sort_keys=True, default=str)
