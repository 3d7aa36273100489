"""Reading a run's folder for a report: whatever is there counts, whatever is not is said."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cala.errors import InputError
from cala.files import reason, shown
from cala.records import SCHEMA, Record
from cala.reports.artifact import Artifact, read_artifact
from cala.reports.headroom import Headroom, read_headroom
from cala.reports.lines import read_lines
from cala.reports.promised import missing_cells
from cala.reports.whole import whole

MOST = 1e15  # seconds or bytes; anything above, or no number at all, is damage


@dataclass
class Run:
    """One run as far as it can be read.

    config : as written by the run; empty if it cannot be read
    records : of whole cells; a session that none has stands without values
    sessions : T, the last session that they reach
    artifacts : by method
    costs : what each method took, where the run says so
    headroom : what oracles reach, by metric, where the run says so
    notes : what is missing or damaged, one sentence each
    """

    path: Path
    config: dict[str, Any] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    sessions: int = 0
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    costs: dict[str, dict[str, float]] = field(default_factory=dict)
    headroom: dict[str, Headroom] = field(default_factory=dict)
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
    found = whole(_records(run), _protocol(run.config))
    run.sessions, run.records = found.sessions, found.records
    run.notes += found.notes
    run.notes += missing_cells(run.config, {r.cell for r in run.records}, found.lost)
    _read_artifacts(run)
    run.costs = _costs(run)
    try:
        run.headroom = read_headroom(path / "headroom.json")
    except InputError as error:
        run.notes.append(f"{error}: the headroom is left out.")
    return run


def _read_artifacts(run: Run) -> None:
    """Those of methods with records; names are matched as they are shown."""
    files = {shown(p.stem): p for p in (run.path / "artifacts").glob("*.safetensors")}
    for method in dict.fromkeys(r.method for r in run.records):
        _read_one(run, method, files.get(method))


def _read_one(run: Run, method: str, file: Path | None) -> None:
    try:
        if file is None:
            raise InputError("its artifact is missing")
        run.artifacts[method], notes = read_artifact(file)
    except InputError as error:
        run.notes.append(f"{method}: {error}; its figures are left out.")
    else:
        run.notes += [f"{method}: {note}" for note in notes]


def _looks_like_run(path: Path) -> bool:
    return (path / "config.json").exists() or (path / "records.jsonl").exists()


def _config(run: Run) -> dict[str, Any]:
    try:
        config = json.loads((run.path / "config.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
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
    """Every record that can be used; what cannot becomes notes."""
    path = run.path / "records.jsonl"
    if not path.exists():
        run.notes.append("records.jsonl is missing: there are no numbers.")
        return []
    try:
        found = read_lines(path.read_text("utf-8", errors="replace"))
    except OSError as error:
        run.notes.append(f"records.jsonl cannot be read ({reason(error)}): there are no numbers.")
        return []
    run.notes += found.notes()
    return found.records


def _costs(run: Run) -> dict[str, dict[str, float]]:
    """Finite numbers of `costs.json` by method; a run of an older version has none."""
    path = run.path / "costs.json"
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))["cost"].items()
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        run.notes.append(f"costs.json cannot be read ({reason(error)}): costs are left out.")
        return {}
    return {shown(method): _numbers(values) for method, values in found}


def _numbers(values: object) -> dict[str, float]:
    if not isinstance(values, dict):
        return {}
    kinds = {k: v for k, v in values.items() if isinstance(v, int | float)}
    return {k: float(v) for k, v in kinds.items() if not isinstance(v, bool) and abs(v) < MOST}


def _protocol(config: dict[str, Any]) -> dict[str, Any]:
    found = config.get("protocol")
    return found if isinstance(found, dict) else {}
