"""What methods cost: time and memory per session, and images that had to be encoded again."""

from __future__ import annotations

from cala.reports.study import Study
from cala.reports.table import Cell, Row, Table, plain, text
from cala.reports.words import sessions

COLUMNS = {
    "fit_seconds": "base session, s",
    "session_seconds": "session, s",
    "head_bytes": "memory, kB",
    "session_encoded": "encoded again",
    "session_encode_seconds": "encoding, s",
}
DIGITS = {"fit_seconds": 1, "session_seconds": 3, "head_bytes": 0, "session_encoded": 0}


def costs_table(study: Study) -> Table | None:
    """One row per method that has costs; None if none has."""
    rows = []
    for method in study.methods:
        found = study.costs.get(method)
        if found:
            rows.append(Row([text(method), *(_cell(found, key) for key in COLUMNS)]))
    if not rows:
        return None
    notes = [
        "base session: fitting the head and its adapter; session: learning the new classes; "
        "memory: what one session hands to the next, after the last; encoded again: test images "
        "per session that had to be encoded again, since the session had changed the encoder (all "
        "others are encoded once, ever).",
        "Times are of the machine that ran, as busy as it was: compare orders of magnitude.",
    ]
    if any(found.get("session_encoded") for found in study.costs.values()):
        notes.insert(1, _length(study))
    caption = "Means over seeds, draws and sessions."
    return Table("costs", "Costs", caption, ["method", *COLUMNS.values()], rows, notes)


def _length(study: Study) -> str:
    return (
        "Methods that encode again train their encoder in every session; adapters on them are "
        "trained on the base branch, which stays frozen. Short sessions become published ones with "
        f"`--full-sessions`.{sessions(study)}"
    )


def _cell(found: dict[str, float], key: str) -> Cell:
    value = found.get(key)
    if value is None:
        return Cell()
    return plain(value / 1000 if key == "head_bytes" else value, DIGITS.get(key, 1))
