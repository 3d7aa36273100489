"""The schema of a run's records: JSON lines on disk are the truth of a run.

One line per method × draw × seed × session. A cell (method, draw, seed) counts once all of its
sessions are there; lines of an unfinished cell, and a last line cut short, are dropped on reading.
Unknown fields of a newer schema are kept aside, never fatal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

SCHEMA = 1

Cell = tuple[str, str, int]


@dataclass(frozen=True)
class Record:
    """One session of one cell.

    metrics : name -> value, None where a value does not exist (novel accuracy in session 0)
    groups : name -> one number per group of test images (`cala.image_groups`); None in records of
        versions that kept none
    """

    method: str
    draw: str
    seed: int
    session: int
    n_classes: int
    n_images: int
    metrics: dict[str, float | None]
    schema: int = SCHEMA
    groups: dict[str, list[float]] | None = None

    @property
    def cell(self) -> Cell:
        return self.method, self.draw, self.seed

    def line(self) -> str:
        values = asdict(self)
        if self.groups is None:
            del values["groups"]
        return json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n"


FIELDS = {field.name for field in fields(Record)}


def parse_line(line: str) -> Record | None:
    """The record of a line; None if it is cut short or not one."""
    try:
        values: dict[str, Any] = json.loads(line)
        record = Record(**{k: v for k, v in values.items() if k in FIELDS})
    except (ValueError, TypeError, AttributeError):
        return None
    return record if isinstance(record.metrics, dict) else None


def whole_cells(records: Iterable[Record], sessions: int) -> list[Record]:
    """Records of cells that have every session 0..T exactly once, in the order of their cells.

    A later copy of the same cell and session replaces an earlier one.
    """
    cells: dict[Cell, dict[int, Record]] = {}
    for record in records:
        cells.setdefault(record.cell, {})[record.session] = record
    wanted = list(range(sessions + 1))
    return [
        by_session[session]
        for by_session in cells.values()
        if sorted(by_session) == wanted
        for session in wanted
    ]


def finished(records: Sequence[Record]) -> set[Cell]:
    """Cells that occur."""
    return {record.cell for record in records}
