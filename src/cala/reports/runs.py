"""What a report needs of a run: records, and whatever artifacts, costs and headroom it has."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cala import storage
from cala.errors import DamagedFile, InputError
from cala.files import read_whole, reason, shown
from cala.metrics import TradeOff, trade_off_from_switches
from cala.records import Record, StoredRun, finished, is_rate, read_run

T = TypeVar("T")

HEADROOM_SCHEMA = 1
#: Missing cells of a method that a note names.
MOST_NAMED = 4


@dataclass(frozen=True)
class Artifact:
    """Arrays of one method after the last session of one draw.

    n_base : B; arrays : by name, older versions have fewer; meta : as written
    """

    n_base: int
    arrays: dict[str, NDArray[Any]]
    meta: dict[str, Any]

    def has(self, *names: str) -> bool:
        return all(name in self.arrays for name in names)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    @property
    def n_classes(self) -> int:
        return len(self.arrays["confusion"])

    @property
    def draw(self) -> str:
        return str(self.meta.get("draw", "one draw"))

    def names(self) -> list[str]:
        """Class names in order of arrival; numbers where the run knew no names."""
        given = self.meta.get("class_names")
        if isinstance(given, list) and len(given) == self.n_classes:
            return [shown(name) for name in given]
        return [f"class {i}" for i in range(self.n_classes)]

    def shares(self, when: str) -> NDArray[Any]:
        """(C, C) share of each true class's images given to each class, `before` or `after`.

        Rows without images are zero; NaN before the adjustment in artifacts of schema 1.
        """
        size, counts = self.n_classes, self["confusion"]
        if when == "before":
            if not self.has("labels", "predicted_before"):
                return np.full((size, size), np.nan)
            flat = self["labels"].astype(np.int64) * size + self["predicted_before"]
            counts = np.bincount(flat, minlength=size * size).reshape(size, size)
        total = counts.sum(1, keepdims=True)
        return np.divide(counts, total, out=np.zeros(counts.shape), where=total > 0)

    def trade_off(self) -> TradeOff | None:
        if not self.has("labels", "switch", "base_right", "novel_right"):
            return None
        base = self["labels"] < self.n_base
        right = np.where(base, self["base_right"], self["novel_right"]).astype(bool)
        switch = self["switch"]
        return trade_off_from_switches(switch[base], right[base], switch[~base], right[~base])


@dataclass(frozen=True)
class Headroom:
    """Oracles in one metric. rates : oracle -> rate -> fraction, only rates that exist"""

    metric: str
    draw: str
    images: int
    rates: dict[str, dict[str, float]]


@dataclass
class Run:
    """One run.

    records : of finished cells
    sessions : T
    artifacts, costs : by method, where the run has them
    headroom : what oracles reach, by metric
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

    @property
    def methods(self) -> dict[str, list[Record]]:
        """The records of each method."""
        found: dict[str, list[Record]] = {}
        for record in self.records:
            found.setdefault(record.method, []).append(record)
        return found

    @property
    def gamma(self) -> float | None:
        """γ at inference where the run sets it."""
        gamma = self.config.get("gamma")
        return float(gamma) if isinstance(gamma, int | float) and np.isfinite(gamma) else None


def load_run(path: Path) -> Run:
    """A run and all that its figures need; nothing on disk is changed."""
    stored = read_run(path)
    run = Run(path, stored.config, stored.records, stored.sessions)
    run.notes += [*stored.damage, *_missing_cells(stored)]
    files = {p.stem: p for p in (path / "artifacts").glob("*.safetensors")}
    for method in run.methods:
        if method in files:
            _add_artifact(run, method, files[method])
        else:
            run.notes.append(f"{method}: its artifact is missing, so it has no figures.")
    run.costs = _optional(run, "costs.json", _costs)
    run.headroom = _optional(run, "headroom.json", _headroom)
    return run


def _add_artifact(run: Run, method: str, path: Path) -> None:
    try:
        run.artifacts[method] = read_artifact(path)
    except InputError as error:
        why = getattr(error, "why", error.code)
        run.notes.append(f"{method}: its artifact cannot be used ({why}), so it has no figures.")


def read_artifact(path: Path) -> Artifact:
    """The arrays that `cala.benchmark.artifacts` wrote; `InputError` if they were changed."""
    meta, arrays = storage.read(path, "artifact", lambda header: json.loads(header["meta"]))
    n_base, classes = meta.get("n_base"), len(arrays.get("confusion", ()))
    if not isinstance(n_base, int) or not 0 < n_base <= classes:
        why = f"it has {n_base!r} base classes of {classes}"
        raise DamagedFile(shown(path), why, storage.FILE_KINDS["artifact"].fix)
    return Artifact(n_base, arrays, meta)


def _missing_cells(run: StoredRun) -> list[str]:
    """A note for each method that lacks cells of its configuration."""
    config, have, notes = run.config, finished(run.records), []
    few, trained = config.get("few_draws"), config.get("trained_in_sessions") or ()
    for method in config.get("methods") or ():
        draws = few if few and method in trained else config.get("draws") or ()
        wanted = [(method, draw, seed) for draw in draws for seed in config.get("seeds") or ()]
        missing = [cell for cell in wanted if cell not in have]
        lacking = [f"{draw}, seed {seed}" if seed else f"{draw}" for _, draw, seed in missing]
        if lacking:
            named = "; ".join(lacking[:MOST_NAMED]) + "; …" * (len(lacking) > MOST_NAMED)
            count = f"{len(lacking)} of {len(wanted)} cells are missing"
            notes.append(shown(f"{method}: {count} ({named})."))
    return notes


def _optional(run: Run, name: str, parse: Callable[[dict[str, Any]], dict[str, T]]) -> dict[str, T]:
    """What a file says; nothing if the run has none, and a note if it is damaged."""
    path = run.path / name
    if not path.exists():
        return {}
    try:
        return parse(json.loads(read_whole(path)))
    except (OSError, ArithmeticError, LookupError, ValueError, TypeError, AttributeError,
            RecursionError) as error:  # fmt: skip
        run.notes.append(f"{name} cannot be read ({reason(error)}); it is left out.")
        return {}


def _costs(content: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {
        method: {name: float(value) for name, value in values.items()}
        for method, values in content["cost"].items()
    }


def _headroom(content: dict[str, Any]) -> dict[str, Headroom]:
    if content["schema"] != HEADROOM_SCHEMA:
        raise ValueError(f"unknown schema {content['schema']!r}")
    found = {}
    for metric, held in content["headroom"].items():
        rates = {
            oracle: {rate: float(v) for rate, v in values.items() if is_rate(v)}
            for oracle, values in held["rates"].items()
        }
        name, draw = shown(metric), shown(held["draw"])
        found[name] = Headroom(name, draw, int(held["images"]), rates)
    return found
