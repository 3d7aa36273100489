"""Which cells are whole, and which sessions a report can show where none is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from cala.records import Cell, Record
from cala.reports.naming import some

Sessions = frozenset[int]


@dataclass
class Whole:
    """sessions : T, the last one shown; records : sessions 0 to T of every cell that counts

    lost : cells that do not count, with the sessions that they lack
    """

    sessions: int = 0
    records: list[Record] = field(default_factory=list)
    lost: dict[Cell, list[int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def whole(records: list[Record], protocol: dict[str, Any]) -> Whole:
    """Cells with all sessions; where a method has none, those with most of them.

    A session that such cells lack stays in its place, without values. A later copy of the same
    cell and session replaces an earlier one.
    """
    cells: dict[Cell, dict[int, Record]] = {}
    for record in records:
        cells.setdefault(record.cell, {})[record.session] = record
    planned, notes = _planned(records, protocol)
    held = {cell: frozenset(s for s in found if s <= planned) for cell, found in cells.items()}
    fullest = _fullest(list(held.values()))
    if not fullest:
        return Whole(planned, notes=notes)
    last = max(fullest)
    if last < planned:
        notes.append(f"No cell has all sessions to {planned}: the report ends at session {last}.")
    held = {cell: frozenset(s for s in found if s <= last) for cell, found in held.items()}
    result = Whole(last, notes=notes)
    holes: dict[str, list[int]] = {}
    for method in dict.fromkeys(method for method, _, _ in cells):
        mine = {cell: found for cell, found in held.items() if cell[0] == method}
        best = _fullest([found for found in mine.values() if last in found])
        if best:
            holes[method] = [t for t in range(last + 1) if t not in best]
        for cell, found in mine.items():
            if best and found == best:
                result.records += [
                    cells[cell].get(t) or _nothing(cell, t, records, protocol)
                    for t in range(last + 1)
                ]
            else:
                result.lost[cell] = [t for t in range(last + 1) if t not in found]
    notes += _hole_notes(holes)
    return result


def _planned(records: list[Record], protocol: dict[str, Any]) -> tuple[int, list[str]]:
    longest = max((r.session for r in records), default=0)
    wanted = protocol.get("sessions")
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 0:
        return longest, []
    if wanted < longest:
        return wanted, [
            f"Records reach session {longest}, the protocol of config.json ends at {wanted}: later "
            "ones are passed over."
        ]
    return wanted, []


def _fullest(found: list[Sessions]) -> Sessions:
    """The largest set of sessions; among equals the most frequent, then the one that ends last."""
    often = Counter(found)
    return max(often, key=lambda s: (len(s), often[s], sorted(s)[::-1]), default=frozenset())


def _hole_notes(holes: dict[str, list[int]]) -> list[str]:
    """One note for all methods where they lack the same sessions."""
    words = "is shown as –, and so are means over sessions."
    alike = {tuple(found) for found in holes.values()}
    if len(alike) == 1:
        lost = list(alike.pop())
        return [f"No cell has all sessions: what is missing ({some(lost)}) {words}"] if lost else []
    return [
        f"{method}: no cell has all sessions: what is missing ({some(lost)}) {words}"
        for method, lost in holes.items()
        if lost
    ]


def _nothing(cell: Cell, session: int, records: list[Record], protocol: dict[str, Any]) -> Record:
    method, draw, seed = cell
    return Record(method, draw, seed, session, _classes_at(session, records, protocol), 0, {})


def _classes_at(session: int, records: list[Record], protocol: dict[str, Any]) -> int:
    """Classes seen by then: from the protocol, else from records; 0 if neither knows."""
    base, way = protocol.get("base"), protocol.get("way")
    if isinstance(base, int) and isinstance(way, int) and base > 0 and way > 0:
        return base + way * session
    known = {r.session: r.n_classes for r in records}
    if session in known or len(known) < 2:
        return known.get(session, 0)
    (a, at_a), (b, at_b) = sorted(known.items())[:2]
    return max(at_a + (session - a) * (at_b - at_a) // (b - a), 0)
