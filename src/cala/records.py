"""A run's records on disk, and their one reader: JSON lines are the truth of a run.

One line per method × draw × seed × session, with a checksum of its own text; lines of versions
that wrote none are still read. A cell (method, draw, seed) counts once all of its sessions are
there. Lines that are cut short, changed or out of range are counted and never used.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from cala.errors import DamagedFile, InputError
from cala.files import counted, read_whole, shown
from cala.storage import json_object, newer, unreadable

SCHEMA = 1
FIX = "run it again in another folder (--out)"
#: Rates may exceed 1 by rounding.
SLACK = 1e-6
CHECKSUM = ', "crc32": "'
#: Parts of `config.json` that others rely on. Lists hold names or numbers.
CONFIG_KINDS: dict[str, type] = {
    "protocol": dict, "embeddings": dict, "own_embeddings": dict, "versions": dict,
    "machine": dict, "methods": list, "draws": list, "seeds": list, "few_draws": list,
    "trained_in_sessions": list,
}  # fmt: skip

Cell = tuple[str, str, int]


@dataclass(frozen=True)
class Record:
    """One session of one cell.

    metrics : name -> rate from 0 to 1, None where it does not exist (novel accuracy in session 0)
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
        body = json.dumps(values, ensure_ascii=False, allow_nan=False)
        return f"{body[:-1]}{_ending(body)}\n"


_FIELDS = {field.name for field in fields(Record)}


def parse_line(line: str) -> Record | None:
    """The record of a line; None if the line is cut short, changed or not a record."""
    try:
        values = json.loads(line)
        if "crc32" in values:
            body, _, _ = line.rpartition(CHECKSUM)
            if line.rstrip() != body + _ending(body + "}"):
                return None
        record = Record(**{k: v for k, v in values.items() if k in _FIELDS})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return record if _is_sound(record) else None


def read_records(path: Path) -> tuple[list[Record], int]:
    """Every sound record of a file, in order, and the number of lines that hold none."""
    try:
        text = read_whole(path, lines=True).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise unreadable(path, error) from error
    found = [parse_line(line) for line in text.split("\n") if line.strip()]
    records = [record for record in found if record is not None]
    return records, len(found) - len(records)


def whole_cells(records: Iterable[Record], sessions: int) -> list[Record]:
    """Records of cells that have every session 0..T, in the order of their cells.

    A later copy of the same cell and session replaces an earlier one.
    """
    cells: dict[Cell, dict[int, Record]] = {}
    for record in records:
        cells.setdefault(record.cell, {})[record.session] = record
    return [
        by_session[session]
        for by_session in cells.values()
        if len(by_session) == sessions + 1 and max(by_session) == sessions
        for session in range(sessions + 1)
    ]


def finished(records: Sequence[Record]) -> set[Cell]:
    """Cells that occur."""
    return {record.cell for record in records}


@dataclass(frozen=True)
class StoredRun:
    """A run folder as it was read.

    records : of finished cells
    unreadable : lines of `records.jsonl` that hold no record
    """

    path: Path
    config: dict[str, Any]
    records: list[Record]
    unreadable: int = 0

    @property
    def sessions(self) -> int:
        return int(self.config["protocol"]["sessions"])

    @property
    def damage(self) -> list[str]:
        """A sentence on unreadable lines; empty if there are none."""
        if not self.unreadable:
            return []
        lines = counted(self.unreadable, "line")
        return [f"{lines} of records.jsonl cannot be read; cells with such lines are left out."]


def read_run(path: str | Path) -> StoredRun:
    """Read a run folder without changing it.

    Raises
    ------
    InputError
        If the folder is not a run folder, or `DamagedFile` if `config.json` cannot be used.
    """
    path = Path(path)
    config = read_config(path)
    if config is None:
        detail = f"{shown(path)} is not a run folder: it has no config.json"
        raise InputError(detail, "give the folder that cala run made", field="runs")
    found, unreadable = read_records(path / "records.jsonl")
    return StoredRun(path, config, whole_cells(found, config["protocol"]["sessions"]), unreadable)


def read_config(folder: Path) -> dict[str, Any] | None:
    """The `config.json` of a run folder; None if there is none."""
    file = folder / "config.json"
    try:
        config = json_object(file, FIX)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(file, error) from error
    schema = config.get("schema", SCHEMA)
    if type(schema) is int and schema > SCHEMA:
        raise newer(file, f"schema {schema}", SCHEMA, code="newer_version")
    for key, kind in CONFIG_KINDS.items():
        value = config.get(key)
        fits = value is None or isinstance(value, kind)
        if not fits or (kind is list and not all(isinstance(v, str | int) for v in value or ())):
            raise DamagedFile(shown(file), f"its {key} cannot be used", FIX)
    sessions = (config.get("protocol") or {}).get("sessions")
    if type(schema) is not int or type(sessions) is not int or sessions < 0:
        raise DamagedFile(shown(file), "it states no schema or no number of sessions", FIX)
    return config


def find_runs(paths: list[Path]) -> list[Path]:
    """Run folders; a folder that only holds run folders (`cala ablate`) stands for these."""
    found: list[Path] = []
    for path in paths:
        is_run = (path / "config.json").exists() or (path / "records.jsonl").exists()
        inner = [path] if is_run else sorted(p.parent for p in path.glob("*/records.jsonl"))
        if not inner:
            what = "is not a run folder: it has neither config.json nor records.jsonl"
            detail = f"{shown(path)} {what if path.is_dir() else 'is not a folder'}"
            raise InputError(detail, "give the folder that cala run made", field="runs")
        found += inner
    return list(dict.fromkeys(p.resolve() for p in found))


def _ending(body: str) -> str:
    return f'{CHECKSUM}{zlib.crc32(body.encode()):08x}"}}'


def _is_sound(record: Record) -> bool:
    """Whether all values are of their kind and in range; names are one printable line."""
    metrics, groups = record.metrics, record.groups
    counts = (record.session, record.n_classes, record.n_images)
    return (
        all(isinstance(x, str) and x.isprintable() for x in (record.method, record.draw))
        and all(type(x) is int for x in (record.seed, *counts))
        and min(counts) >= 0 < record.n_classes
        and isinstance(metrics, dict)
        and is_rate(metrics.get("accuracy"))
        and all(value is None or is_rate(value) for value in metrics.values())
        and isinstance(groups, dict | None)
    )


def is_rate(value: object) -> bool:
    """Whether a value from a file is a number from 0 to 1."""
    return type(value) in (int, float) and -SLACK <= value <= 1 + SLACK  # type: ignore[operator]
