"""A run's folder: config, records appended as cells finish, and what is made of them.

Killed at any moment it can be opened again: `config.json` is written in one step, a cell's lines
are appended together and flushed to disk, and lines that are cut short are dropped on opening.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cala.benchmark.costs import Cost, read_costs
from cala.benchmark.sources import host_of
from cala.errors import InputError
from cala.files import read_whole, shown, sync_folder, write_text
from cala.records import Record, read_config, read_records, whole_cells

#: What may differ when a run is continued: more methods, draws or seeds, other versions.
_GROWING = ("methods", "draws", "seeds", "versions", "machine", "own_embeddings", "few_draws")
_LISTS = ("methods", "draws", "seeds", "trained_in_sessions")
#: What not every run states: it is compared where both have it.
SOMETIMES = ("full_sessions", "rows")


class RunFolder:
    """The folder of one run; its caller has locked it."""

    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        self.path = path
        before = read_config(path)
        if before is not None:
            _check_same_run(path, before, config)
            config = {**config, **_grown(before, config)}
        self.config = config
        text = json.dumps(config, indent=1, ensure_ascii=False)
        write_text(path / "config.json", text + "\n")
        # Lines that cannot be read or belong to unfinished cells are dropped.
        found, self.unreadable = read_records(path / "records.jsonl")
        self.records = whole_cells(found, int(config["protocol"]["sessions"]))
        _rewrite(path / "records.jsonl", self.records)
        self.costs = read_costs(_text(path / "costs.jsonl"))
        _rewrite(path / "costs.jsonl", self.costs)

    def append(self, cost: Cost, records: Sequence[Record]) -> None:
        """Add a finished cell; it is on disk when this returns.

        Its cost comes first: a cell that counts has one.
        """
        with (self.path / "costs.jsonl").open("a", encoding="utf-8") as file:
            file.write(cost.line())
        with (self.path / "records.jsonl").open("a", encoding="utf-8") as file:
            file.write("".join(record.line() for record in records))
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.path)  # the file may be new
        self.costs.append(cost)
        self.records += records

    def put_in_order(self) -> None:
        """Sort cells as the configuration lists them, whatever the order they finished in."""
        places = [
            {name: i for i, name in enumerate(self.config[key])}
            for key in ("methods", "seeds", "draws")
        ]

        def place(record: Record) -> tuple[int, ...]:
            values = (record.method, record.seed, record.draw)
            cell = (known.get(v, len(known)) for known, v in zip(places, values, strict=True))
            return *cell, record.session

        self.records.sort(key=place)
        _rewrite(self.path / "records.jsonl", self.records)


def _text(path: Path) -> str:
    return read_whole(path, lines=True).decode("utf-8", "replace") if path.exists() else ""


def _rewrite(path: Path, found: Sequence[Record | Cost]) -> None:
    """Write a file of lines again if it holds anything else."""
    kept = "".join(one.line() for one in found)
    if kept != _text(path):
        write_text(path, kept)


def _check_same_run(path: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    now = json.loads(json.dumps(now))
    apart = (*_GROWING, *_LISTS, *(k for k in SOMETIMES if k not in before))
    differ = [k for k in now if k not in apart and before.get(k) != now[k]]
    changes = "; ".join(f"{k} was {before.get(k)!r}, is {now[k]!r}" for k in differ)
    changes = changes or _other_embeddings(before, now)
    if changes:
        raise InputError(
            f"{shown(path)} holds another run ({changes})",
            "use another --out or the same options",
            field="out",
            code="another_run",
        )


def _other_embeddings(before: dict[str, Any], now: dict[str, Any]) -> str:
    """A description of the first host whose embeddings have changed; empty if none have."""
    if not before.get("own_embeddings") and not now.get("own_embeddings"):
        return ""
    hosts = [{host_of(method) for method in config.get("methods", [])} for config in (before, now)]
    for host in sorted(hosts[0] & hosts[1]):
        was, here = (c.get("own_embeddings", {}).get(host, c["embeddings"]) for c in (before, now))
        if was != here:
            return f"embeddings of {host} were {was!r}, are {here!r}"
    return ""


def _grown(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Methods, draws, seeds and embeddings of single hosts of both."""
    grown = {k: before[k] for k in ("few_draws", *SOMETIMES) if k in before and k not in now}
    for key in _LISTS:
        if key in before or key in now:
            grown[key] = list(dict.fromkeys([*before.get(key, []), *now.get(key, [])]))
    own = {**before.get("own_embeddings", {}), **now.get("own_embeddings", {})}
    return {**grown, "own_embeddings": own} if own else grown
