"""Reading a run's `headroom.json`: what oracles that see test labels reach on nearest mean."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cala.errors import InputError
from cala.files import reason, shown

SCHEMA = 1


@dataclass(frozen=True)
class Headroom:
    """Of one metric. rates : oracle -> rate -> fraction; a rate that does not exist is left out"""

    metric: str
    draw: str
    images: int
    rates: dict[str, dict[str, float]]


def read_headroom(path: Path) -> dict[str, Headroom]:
    """By metric; nothing for a run without the file, `InputError` where it cannot be read."""
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["schema"] != SCHEMA:
            raise InputError(f"headroom.json has the unknown schema {content['schema']!r}")
        return {name: _one(name, held) for name, held in content["headroom"].items()}
    except Exception as error:  # whatever is wrong with the file, the rest of the page is made
        raise InputError(f"headroom.json cannot be read ({reason(error)})") from error


def _one(metric: str, held: dict[str, Any]) -> Headroom:
    rates = {
        oracle: {rate: float(v) for rate, v in found.items() if _is_rate(v)}
        for oracle, found in held["rates"].items()
    }
    return Headroom(shown(metric), shown(held["draw"]), int(held["images"]), rates)


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
