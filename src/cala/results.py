"""What a run's records say: per method and draw, averaged over seeds, in percent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from cala.metrics import SessionMetrics, Summary, summarise
from cala.records import Record
from cala.statistics import Estimate, estimate, paired

COLUMNS = tuple(field.name for field in fields(Summary))
SESSION_COLUMNS = tuple(field.name for field in fields(SessionMetrics))


class Results:
    """Records of whole cells, by method, draw and seed.

    records : what it was made from
    methods, draws : in order of appearance
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = list(records)
        self._cells: dict[tuple[str, str], dict[int, list[SessionMetrics]]] = {}
        for record in sorted(records, key=lambda r: r.session):
            seeds = self._cells.setdefault((record.method, record.draw), {})
            seeds.setdefault(record.seed, []).append(_metrics(record))
        self.methods = list(dict.fromkeys(r.method for r in records))
        self.draws = list(dict.fromkeys(r.draw for r in records))

    def shared_draws(self, methods: Sequence[str], draws: Sequence[str] | None = None) -> list[str]:
        """Draws that all of `methods` have."""
        wanted = self.draws if draws is None else draws
        return [d for d in wanted if all((m, d) in self._cells for m in methods)]

    def random_draws(self) -> list[str]:
        return [draw for draw in self.draws if draw != "canonical"]

    def values(self, method: str, column: str, draws: Sequence[str]) -> list[float]:
        """One summary column per draw, seeds averaged inside a draw, in percent."""
        return [
            100 * float(np.mean([getattr(summarise(s), column) for s in cell.values()]))
            for draw in draws
            if (cell := self._cells.get((method, draw)))
        ]

    def session_values(self, method: str, column: str, draws: Sequence[str]) -> list[list[float]]:
        """Per session, one value per draw, in percent."""
        cells = [c for draw in draws if (c := self._cells.get((method, draw)))]
        if not cells:
            return []
        sessions = min(len(s) for cell in cells for s in cell.values())
        return [
            [100 * float(np.mean([getattr(s[t], column) for s in cell.values()])) for cell in cells]
            for t in range(sessions)
        ]

    def estimate(self, method: str, column: str, draws: Sequence[str]) -> Estimate:
        return estimate(self.values(method, column, draws))

    def difference(
        self, method: str, reference: str, column: str, draws: Sequence[str]
    ) -> Estimate:
        """Paired over the draws that both have."""
        shared = self.shared_draws([method, reference], draws)
        return paired(self.values(method, column, shared), self.values(reference, column, shared))

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
                c: [_plain(estimate(v)) for v in self.session_values(method, c, draws)]
                for c in SESSION_COLUMNS
            },
        }


def _metrics(record: Record) -> SessionMetrics:
    """A record's metrics; one that is missing is NaN, one that is unknown is passed over."""
    given = record.metrics
    values = {name: given.get(name) for name in SESSION_COLUMNS}
    return SessionMetrics(**{k: float("nan") if v is None else float(v) for k, v in values.items()})


def _plain(found: Estimate) -> dict[str, float | int | None]:
    """For JSON, which knows no NaN."""
    return {k: None if v != v else v for k, v in asdict(found).items()}
