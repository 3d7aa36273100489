"""What methods cost: seconds and bytes, kept apart from records since no two runs agree on them.

One JSON line per cell in `costs.jsonl`, written before the cell's records, so that a cell that
counts has its costs; of two lines of the same cell the later one holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence, Set
from dataclasses import asdict, dataclass, fields
from statistics import fmean
from typing import Any

from cala.heads import Head
from cala.records import Cell

COSTS_SCHEMA = 1


@dataclass(frozen=True)
class Cost:
    """Of one cell.

    fit_seconds : for the base session, of the head that all draws of the seed share
    session_seconds : of learning, one value per incremental session
    head_bytes : of all that one session hands to the next, after the last
    encoded, encode_seconds : test images that sessions encoded again, since the encoder had changed
    """

    method: str
    draw: str
    seed: int
    fit_seconds: float
    session_seconds: list[float]
    head_bytes: int
    encoded: int = 0
    encode_seconds: float = 0.0
    schema: int = COSTS_SCHEMA

    @property
    def cell(self) -> Cell:
        return self.method, self.draw, self.seed

    def line(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False) + "\n"


_FIELDS = {field.name for field in fields(Cost)}


def read_costs(text: str) -> list[Cost]:
    """The costs of every whole line, the last of each cell; a line cut short is passed over."""
    found = [cost for line in text.split("\n") if (cost := _parsed(line)) is not None]
    return list({cost.cell: cost for cost in found}.values())


def _parsed(line: str) -> Cost | None:
    try:
        values: dict[str, Any] = json.loads(line)
        cost = Cost(**{k: v for k, v in values.items() if k in _FIELDS})
        hash(cost.cell)
        numbers = [cost.fit_seconds, cost.head_bytes, *cost.session_seconds]
        numbers += [cost.encoded, cost.encode_seconds]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return cost if all(isinstance(number, int | float) for number in numbers) else None


def head_bytes(head: Head) -> int:
    """Bytes of all that a head would be saved with."""
    return sum(array.nbytes for array in head.state()["tensors"].values())


def summarise_costs(
    costs: Iterable[Cost], methods: Sequence[str], draws: Sequence[str], cells: Set[Cell]
) -> dict[str, dict[str, float | int]]:
    """Per method: means over seeds (fit) and over sessions and draws; bytes in the first draw.

    cells : those that count; a method without costs, as in a run of an older version, is left out
    """
    place = {draw: i for i, draw in enumerate(draws)}
    kept = {cost.cell: cost for cost in costs if cost.cell in cells}.values()
    found: dict[str, dict[str, float | int]] = {}
    for method in methods:
        ours = [cost for cost in kept if cost.method == method]
        if not ours:
            continue
        seeds: dict[int, list[float]] = {}
        for cost in ours:
            seeds.setdefault(cost.seed, []).append(cost.fit_seconds)
        first = min(ours, key=lambda cost: (place.get(cost.draw, len(place)), cost.seed))
        seconds = [second for cost in ours for second in cost.session_seconds]
        found[method] = {
            "fit_seconds": fmean(map(fmean, seeds.values())),
            "session_seconds": fmean(seconds) if seconds else 0.0,
            "head_bytes": first.head_bytes,
        }
        encoded = sum(cost.encoded for cost in ours)
        if seconds and encoded:
            spent = sum(cost.encode_seconds for cost in ours)
            found[method]["session_encoded"] = encoded / len(seconds)
            found[method]["session_encode_seconds"] = spent / len(seconds)
    return found
