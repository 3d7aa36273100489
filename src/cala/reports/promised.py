"""Which cells a run's configuration promises and its records lack."""

from __future__ import annotations

from typing import Any

from cala.files import shown
from cala.records import Cell
from cala.reports.naming import some

MOST_NAMED = 4


def missing_cells(
    config: dict[str, Any], have: set[Cell], lost: dict[Cell, list[int]]
) -> list[str]:
    """A note for each method; lost : cells that were begun, with the sessions that they lack."""
    notes: list[str] = []
    methods = _names(config, "methods", notes)
    draws = _names(config, "draws", notes)
    seeds = _seeds(config, notes)
    few = _names(config, "few_draws", notes)
    trained = set(_names(config, "trained_in_sessions", notes)) if few else set()
    wanted = [(m, d, s) for m in methods for d in (few if m in trained else draws) for s in seeds]
    by_method: dict[str, list[Cell]] = {}
    for cell in wanted or [*have, *lost]:
        by_method.setdefault(cell[0], []).append(cell)
    for method, cells in by_method.items():
        lacking = [cell for cell in cells if cell not in have]
        if lacking:
            named = "; ".join(_lack(cell, lost) for cell in lacking[:MOST_NAMED])
            more = "; …" if len(lacking) > MOST_NAMED else ""
            count = f"{len(lacking)} of {len(cells)} cells are missing"
            notes.append(f"{method}: {count} ({named}{more}).")
    return notes


def _lack(cell: Cell, lost: dict[Cell, list[int]]) -> str:
    _, draw, seed = cell
    name = draw + (f", seed {seed}" if seed else "")
    return f"{name} without {some(lost[cell])}" if lost.get(cell) else name


def _names(config: dict[str, Any], key: str, notes: list[str]) -> list[str]:
    return list(dict.fromkeys(shown(x) for x in _listed(config, key, str, notes)))


def _seeds(config: dict[str, Any], notes: list[str]) -> list[int]:
    return list(dict.fromkeys(x for x in _listed(config, "seeds", int, notes)))


def _listed(config: dict[str, Any], key: str, kind: type, notes: list[str]) -> list[Any]:
    """Entries of the right kind; others are named once."""
    given = config.get(key)
    if not isinstance(given, list):
        return []
    good = [x for x in given if isinstance(x, kind) and not isinstance(x, bool)]
    if len(good) < len(given):
        wrong = next(x for x in given if not isinstance(x, kind) or isinstance(x, bool))
        what = shown(repr(wrong))[:40]
        notes.append(
            f"config.json: {len(given) - len(good)} of its {key} are none (first: {what}); passed "
            "over."
        )
    return good
