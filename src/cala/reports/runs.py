"""What a report needs of a run: records, and whatever artifacts, costs and headroom it has."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cala.errors import DamagedFile
from cala.files import reason, shown
from cala.metrics import TradeOff, trade_off_from_switches
from cala.records import Record, StoredRun, finished, is_rate, read_run

Array = NDArray[Any]
T = TypeVar("T")

HEADROOM_SCHEMA = 1
#: Missing cells of a method that a note names.
MOST_NAMED = 4
#: Array -> its dimensions in the letters of `cala.benchmark.artifacts`.
SHAPES = {
    "confusion": "CC", "softmax_before": "C", "softmax_after": "C", "beta": "C", "shift": "C",
    "similarity": "NB", "labels": "n", "switch": "n", "base_right": "n", "novel_right": "n",
    "predicted_before": "n", "predicted_after": "n", "confidence_before": "n",
    "confidence_after": "n", "prototypes": "Cd", "sample": "md", "sample_labels": "m",
    "sample_logits": "mC", "gamma": "G", "gamma_accuracy": "GS", "beta_draws": "DN",
    "similarity_draws": "DN",
}  # fmt: skip
CLASS_NUMBERS = ("labels", "predicted_before", "predicted_after", "sample_labels")


@dataclass(frozen=True)
class Artifact:
    """Arrays of one method after the last session of one draw.

    n_base : B; arrays : by name, older versions have fewer; meta : as written
    """

    n_base: int
    arrays: dict[str, Array]
    meta: dict[str, Any]

    def has(self, *names: str) -> bool:
        return all(name in self.arrays for name in names)

    def __getitem__(self, name: str) -> Array:
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

    def shares(self, when: str) -> Array:
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
    except DamagedFile as error:
        run.notes.append(f"{method}: its artifact is damaged ({error.why}), so it has no figures.")


def read_artifact(path: Path) -> Artifact:
    """The arrays of a file; `DamagedFile` unless all of them fit together."""
    from safetensors import SafetensorError, safe_open

    again = "delete it and run the same command again"
    try:
        with safe_open(path, "np") as file:
            header, held = file.metadata() or {}, set(file.keys())
            arrays = {name: file.get_tensor(name) for name in SHAPES if name in held}
        meta = json.loads(header.get("meta", "{}"))
        n_base = meta.get("n_base")
        why = _misfit(arrays, n_base)
    except (OSError, ValueError, TypeError, AttributeError, SafetensorError) as error:
        raise DamagedFile(shown(path), reason(error), again) from error
    if why:
        raise DamagedFile(shown(path), why, again)
    return Artifact(n_base, arrays, meta)


def _misfit(arrays: dict[str, Array], n_base: object) -> str:
    """Why arrays cannot be used; empty if they can. Letters seen first set their size."""
    classes = len(arrays.get("confusion", ()))
    if not isinstance(n_base, int) or not 0 < n_base <= classes:
        return f"it has {n_base!r} base classes of {classes}"
    sizes = {"C": classes, "B": n_base, "N": classes - n_base}
    for name, array in arrays.items():
        if name.endswith("_draws") and array.size == 0:
            continue
        fits = array.ndim == len(SHAPES[name]) and all(
            sizes.setdefault(letter, length) == length
            for letter, length in zip(SHAPES[name], array.shape, strict=True)
        )
        if not fits:
            return f"{name} has the shape {array.shape}"
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return f"{name} contains NaN or infinity"
        if name in CLASS_NUMBERS and array.size and not 0 <= array.min() <= array.max() < classes:
            return f"{name} names classes that do not exist"
    return ""


def _missing_cells(run: StoredRun) -> list[str]:
    """A note for each method that lacks cells of its configuration."""
    config, have, notes = run.config, finished(run.records), []
    few, trained = config.get("few_draws"), config.get("trained_in_sessions") or ()
    for method in config.get("methods") or ():
        draws = few if few and method in trained else config.get("draws") or ()
        wanted = [(method, draw, seed) for draw in draws for seed in config.get("seeds") or ()]
        lacking = [
            f"{draw}, seed {seed}" if seed else f"{draw}"
            for method, draw, seed in wanted
            if (method, draw, seed) not in have
        ]
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
        return parse(json.loads(path.read_text("utf-8")))
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
        found[shown(metric)] = Headroom(
            shown(metric), shown(held["draw"]), int(held["images"]), rates
        )
    return found
