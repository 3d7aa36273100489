"""What a run's records say: per method and draw, averaged over seeds, in percent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import cached_property
from typing import Any

import numpy as np

from cala.image_groups import left_out
from cala.metrics import Floats, SessionMetrics, Summary, summarise
from cala.records import Record
from cala.statistics import Interval, mean_interval, paired

COLUMNS = tuple(field.name for field in fields(Summary))
SESSION_COLUMNS = tuple(field.name for field in fields(SessionMetrics))


class Results:
    """Records of whole cells, by method, draw and seed.

    records : what it was made from
    methods, draws : in order of appearance
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = list(records)
        cells: dict[tuple[str, str], dict[int, list[Record]]] = {}
        for record in sorted(records, key=lambda r: r.session):
            seeds = cells.setdefault((record.method, record.draw), {})
            seeds.setdefault(record.seed, []).append(record)
        self._cells = {key: list(map(_SeedRun, seeds.values())) for key, seeds in cells.items()}
        self.methods = list(dict.fromkeys(r.method for r in records))
        self.draws = list(dict.fromkeys(r.draw for r in records))

    def shared_draws(self, methods: Sequence[str], draws: Sequence[str] | None = None) -> list[str]:
        """Draws that all of `methods` have."""
        wanted = self.draws if draws is None else draws
        return [d for d in wanted if all((m, d) in self._cells for m in methods)]

    def random_draws(self) -> list[str]:
        return [draw for draw in self.draws if draw != "canonical"]

    def covered(self, draws: Sequence[str]) -> str:
        """What intervals are over, in words; records of older versions know of draws alone."""
        found = [m for m in self.methods if self.shared_draws([m], draws)]
        alone = [m for m in found if not self.estimate(m, "last", draws).groups]
        if not alone:
            return "over draws of shots and test images"
        if alone == found:
            return "over draws of shots alone, not test images"
        return f"over draws of shots and test images ({', '.join(alone)}: draws alone)"

    def values(self, method: str, column: str, draws: Sequence[str]) -> list[float]:
        """One summary column per draw, seeds averaged inside a draw, in percent."""
        return [
            100 * float(np.mean([getattr(run.summary, column) for run in cell]))
            for cell in self._found(method, draws)
        ]

    def session_values(self, method: str, column: str, draws: Sequence[str]) -> list[list[float]]:
        """Per session, one value per draw, in percent."""
        cells = self._found(method, draws)
        sessions = min((len(c.sessions) for cell in cells for c in cell), default=0)
        return [
            [100 * float(np.mean([getattr(c.sessions[t], column) for c in cell])) for cell in cells]
            for t in range(sessions)
        ]

    def estimate(self, method: str, column: str, draws: Sequence[str]) -> Interval:
        return mean_interval(
            self.values(method, column, draws), self._without(method, column, draws)
        )

    def difference(
        self, method: str, reference: str, column: str, draws: Sequence[str]
    ) -> Interval:
        """Paired over the draws that both have."""
        both = method, reference
        shared = self.shared_draws(both, draws)
        values = (self.values(m, column, shared) for m in both)
        return paired(*values, *(self._without(m, column, shared) for m in both))

    def per_session(self, method: str, column: str, draws: Sequence[str]) -> list[Interval]:
        """One metric in sessions 0 to T; nothing where the method has none of the draws."""
        values = self.session_values(method, column, draws)
        return [
            mean_interval(v, self._without(method, column, draws, t)) for t, v in enumerate(values)
        ]

    def session_differences(
        self, method: str, reference: str, column: str, draws: Sequence[str]
    ) -> list[Interval]:
        """One metric in sessions 0 to T, paired over the draws that both have."""
        both = method, reference
        shared = self.shared_draws(both, draws)
        values = zip(*(self.session_values(m, column, shared) for m in both), strict=True)
        return [
            paired(*pair, *(self._without(m, column, shared, t) for m in both))
            for t, pair in enumerate(values)
        ]

    def _found(self, method: str, draws: Sequence[str]) -> list[list[_SeedRun]]:
        return [cell for draw in draws if (cell := self._cells.get((method, draw)))]

    def _without(
        self, method: str, column: str, draws: Sequence[str], session: int | None = None
    ) -> Floats | None:
        """(G,) mean over draws without each group of test images; None unless all records say it.

        session : of a session metric; None for a summary column
        """
        cells = self._found(method, draws)
        counts = {len(run.left_out) for cell in cells for run in cell}
        if len(counts) != 1 or counts == {0}:
            return None

        def values(run: _SeedRun) -> list[float]:
            if session is None:
                return [getattr(summary, column) for summary in run.left_out_summaries]
            return [getattr(sessions[session], column) for sessions in run.left_out]

        found = [np.mean([values(run) for run in cell], axis=0) for cell in cells]
        return 100 * np.mean(found, axis=0)

    def as_json(self, reference: str | None = None) -> dict[str, Any]:
        """Everything a table needs, for canonical and random draws apart.

        reference : the method that differences are counted from; the first by default
        """
        reference = self.methods[0] if reference is None and self.methods else reference
        groups = {"canonical": [d for d in self.draws if d == "canonical"]}
        groups["random"] = self.random_draws()
        return {
            group: {m: self._method_json(m, str(reference), draws) for m in self.methods}
            for group, draws in groups.items()
            if draws
        }

    def _method_json(self, method: str, reference: str, draws: Sequence[str]) -> dict[str, Any]:
        return {
            "summary": {c: _plain(self.estimate(method, c, draws)) for c in COLUMNS},
            "difference_to": reference,
            "difference": {
                c: _plain(self.difference(method, reference, c, draws)) for c in COLUMNS
            },
            "sessions": {
                c: [_plain(found) for found in self.per_session(method, c, draws)]
                for c in SESSION_COLUMNS
            },
        }


class _SeedRun:
    """One method, draw and seed over all sessions.

    left_out : the sessions without each group of test images; empty if the records keep no groups
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self.sessions = [_metrics(record) for record in records]

    @cached_property
    def summary(self) -> Summary:
        return summarise(self.sessions)

    @cached_property
    def left_out(self) -> list[list[SessionMetrics]]:
        found = [left_out(r.groups) if r.groups else None for r in self._records]
        counts = {len(groups) for groups in found if groups}
        if len(counts) != 1:
            return []
        missing = [_metrics(None)] * counts.pop()
        by_session = [groups or missing for groups in found]
        return [list(sessions) for sessions in zip(*by_session, strict=True)]

    @cached_property
    def left_out_summaries(self) -> list[Summary]:
        return [summarise(sessions) for sessions in self.left_out]


def _metrics(record: Record | None) -> SessionMetrics:
    """A record's metrics; one that is missing is NaN, one that is unknown is passed over."""
    given = record.metrics if record else {}
    values = {name: given.get(name) for name in SESSION_COLUMNS}
    return SessionMetrics(**{k: float("nan") if v is None else float(v) for k, v in values.items()})


def _plain(found: Interval) -> dict[str, float | int | None]:
    """For JSON, which knows no NaN."""
    return {k: None if v != v else v for k, v in asdict(found).items()}
