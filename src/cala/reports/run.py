"""Reading a run's folder for a report: whatever is there counts, whatever is not is said."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cala.errors import InputError
from cala.files import reason, shown
from cala.records import FIELDS, SCHEMA, Cell, Record, parse_line, whole_cells
from cala.reports.artifact import Artifact, read_artifact

MOST_NAMED = 4


@dataclass
class Run:
    """One run as far as it can be read.

    config : as written by the run; empty if it cannot be read
    records : of whole cells only
    sessions : T, the last session that whole cells reach
    artifacts : by method
    notes : what is missing or damaged, one sentence each
    """

    path: Path
    config: dict[str, Any] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    sessions: int = 0
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def find_runs(paths: list[Path]) -> list[Path]:
    """Run folders; a folder that only holds run folders (`cala ablate`) stands for these."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise InputError(f"{shown(path)} is no folder: give the folder that cala run made")
        inner = sorted(p.parent for p in path.glob("*/records.jsonl"))
        if _looks_like_run(path):
            found.append(path)
        elif inner:
            found += inner
        else:
            raise InputError(
                f"{shown(path)} is no run folder: it has neither config.json nor records.jsonl"
            )
    return list(dict.fromkeys(p.resolve() for p in found))


def read_run(path: Path) -> Run:
    """A run without changing anything on disk; damage becomes notes."""
    run = Run(path)
    run.config = _config(run)
    records = _records(run)
    run.sessions, run.records = _whole(run, records)
    _note_missing_cells(run)
    for method in dict.fromkeys(r.method for r in run.records):
        file = path / "artifacts" / f"{method}.safetensors"
        try:
            run.artifacts[method], notes = read_artifact(file)
            run.notes += [f"{method}: {note}" for note in notes]
        except InputError as error:
            run.notes.append(f"{method}: {error}; its figures are left out.")
    return run


def _looks_like_run(path: Path) -> bool:
    return (path / "config.json").exists() or (path / "records.jsonl").exists()


def _config(run: Run) -> dict[str, Any]:
    try:
        config = json.loads((run.path / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        run.notes.append(f"config.json cannot be read ({reason(error)}): the protocol is guessed.")
        return {}
    if not isinstance(config, dict):
        run.notes.append("config.json holds no configuration: the protocol is guessed.")
        return {}
    schema = config.get("schema", SCHEMA)
    if not isinstance(schema, int) or schema > SCHEMA:
        run.notes.append(f"config.json has the unknown schema {schema!r}: read as far as known.")
    return config


def _records(run: Run) -> list[Record]:
    """Every readable line; values that are no numbers take their cell out."""
    path = run.path / "records.jsonl"
    if not path.exists():
        run.notes.append("records.jsonl is missing: there are no numbers.")
        return []
    good, unread, unknown, bad = [], 0, set[str](), set[Cell]()
    for line in path.read_text("utf-8", errors="replace").split("\n"):
        if not line.strip():
            continue
        record = parse_line(line)
        if record is None or not _sound(record):
            unread += 1
            continue
        unknown |= set(json.loads(line)) - FIELDS
        wrong = [k for k, v in record.metrics.items() if not _number_or_none(v)]
        if wrong or record.metrics.get("accuracy") is None:
            run.notes.append(
                f"{_cell(record.cell)}: {', '.join(wrong) or 'accuracy'} of session "
                f"{record.session} is not a number; the draw is left out."
            )
            bad.add(record.cell)
        good.append(record)
    if unread:
        run.notes.append(f"{unread} of the lines in records.jsonl cannot be read; passed over.")
    if unknown:
        run.notes.append(f"Unknown fields are passed over: {', '.join(sorted(unknown))}.")
    return [r for r in good if r.cell not in bad]


def _whole(run: Run, records: list[Record]) -> tuple[int, list[Record]]:
    """T and the records of cells that have all sessions; T shrinks if no cell has them all."""
    wanted = _protocol(run.config).get("sessions")
    longest = max((r.session for r in records), default=0)
    planned = wanted if isinstance(wanted, int) and wanted >= 0 else longest
    for sessions in range(planned, -1, -1):
        whole = whole_cells([r for r in records if r.session <= sessions], sessions)
        if whole:
            if sessions < planned:
                run.notes.append(
                    f"No cell has all sessions to {planned}: the report ends at session {sessions}."
                )
            return sessions, whole
    return planned, []


def _note_missing_cells(run: Run) -> None:
    """Which cells the configuration promises and the records lack."""
    have = {r.cell for r in run.records}
    lists = [run.config.get(key) for key in ("methods", "draws", "seeds")]
    if not all(isinstance(x, list) for x in lists):
        return
    methods, draws, seeds = (x if isinstance(x, list) else [] for x in lists)
    for method in methods:
        lacking = [(method, d, s) for d in draws for s in seeds if (method, d, s) not in have]
        if not lacking:
            continue
        total = len(draws) * len(seeds)
        named = ", ".join(_cell(c)[len(method) + 2 :] for c in lacking[:MOST_NAMED])
        more = "…" if len(lacking) > MOST_NAMED else ""
        run.notes.append(f"{method}: {len(lacking)} of {total} cells are missing ({named}{more}).")


def _sound(record: Record) -> bool:
    return (
        isinstance(record.method, str)
        and isinstance(record.draw, str)
        and isinstance(record.seed, int)
        and isinstance(record.session, int)
        and record.session >= 0
        and isinstance(record.n_classes, int)
    )


def _number_or_none(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _protocol(config: dict[str, Any]) -> dict[str, Any]:
    found = config.get("protocol")
    return found if isinstance(found, dict) else {}


def _cell(cell: Cell) -> str:
    method, draw, seed = cell
    return f"{method}, {draw}" + (f", seed {seed}" if seed else "")
