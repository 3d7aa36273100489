"""Reading a method's artifact: arrays that fit together, and notes on those that do not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala import storage
from cala.errors import InputError
from cala.files import shown
from cala.metrics import TradeOff, trade_off_from_switches

Array = NDArray[Any]

#: Array -> its shape in the letters of `cala.benchmark.artifacts`.
SHAPES: dict[str, tuple[str, ...]] = {
    "confusion": ("C", "C"),
    "softmax_before": ("C",),
    "softmax_after": ("C",),
    "beta": ("C",),
    "shift": ("C",),
    "similarity": ("N", "B"),
    "labels": ("n",),
    "switch": ("n",),
    "base_right": ("n",),
    "novel_right": ("n",),
    "predicted_before": ("n",),
    "predicted_after": ("n",),
    "confidence_before": ("n",),
    "confidence_after": ("n",),
    "prototypes": ("C", "d"),
    "sample": ("m", "d"),
    "sample_labels": ("m",),
    "sample_logits": ("m", "C"),
    "gamma": ("G",),
    "gamma_accuracy": ("G", "S"),
    "beta_draws": ("D", "N"),
    "similarity_draws": ("D", "N"),
}


@dataclass(frozen=True)
class Artifact:
    """Arrays of one method after the last session of one draw.

    n_base : B; arrays : those that are there and fit, by name; meta : as written
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

    def confusion(self, when: str) -> Array | None:
        """(C, C) counts, `before` or `after` the adjustment."""
        if self.has("labels", f"predicted_{when}"):
            size = self.n_classes
            flat = self["labels"].astype(np.int64) * size + self[f"predicted_{when}"]
            return np.bincount(flat, minlength=size * size).reshape(size, size)
        return self.arrays["confusion"] if when == "after" else None

    def trade_off(self) -> TradeOff | None:
        if not self.has("labels", "switch", "base_right", "novel_right"):
            return None
        base = self["labels"] < self.n_base
        right = np.where(base, self["base_right"], self["novel_right"]).astype(bool)
        switch = self["switch"]
        return trade_off_from_switches(switch[base], right[base], switch[~base], right[~base])


def read_artifact(path: Path) -> tuple[Artifact, list[str]]:
    """The artifact and what is wrong with it; `InputError` where nothing can be used."""
    if not path.is_file():
        raise InputError("its artifact is missing")
    notes: list[str] = []

    def old(header: dict[str, str]) -> dict[str, Any]:
        if header.get("schema", "1") not in ("1", "2"):
            notes.append(
                f"its artifact has the unknown schema {header['schema']}; known arrays are used."
            )
        return dict(json.loads(header.get("meta", "{}")))

    try:
        meta, arrays = storage.read(path, "artifact", old)
    except InputError as error:
        raise InputError(f"its artifact cannot be read ({error.detail})") from error
    return _checked(arrays, meta, notes), notes


def _checked(arrays: dict[str, Array], meta: dict[str, Any], notes: list[str]) -> Artifact:
    confusion = arrays.get("confusion")
    if confusion is None or confusion.ndim != 2 or len(set(confusion.shape)) != 1:
        raise InputError("its artifact holds no confusion matrix")
    sizes = {"C": len(confusion)}
    n_base = meta.get("n_base")
    similarity = arrays.get("similarity")
    if not isinstance(n_base, int) and similarity is not None and similarity.ndim == 2:
        n_base = int(similarity.shape[1])
    if not isinstance(n_base, int) or not 0 < n_base <= sizes["C"]:
        raise InputError(f"its artifact has {n_base!r} base classes of {sizes['C']}")
    sizes |= {"B": n_base, "N": sizes["C"] - n_base}
    kept: dict[str, Array] = {}
    for name, letters in SHAPES.items():
        if name not in arrays:
            continue
        why = _unfit(arrays[name], letters, sizes, name)
        if why:
            notes.append(f"{name} of its artifact {why}; left out.")
        else:
            kept[name] = arrays[name]
    return Artifact(n_base, kept, meta)


def _unfit(array: Array, letters: tuple[str, ...], sizes: dict[str, int], name: str) -> str:
    """Why an array cannot be used; empty if it can. Letters seen first set their size."""
    if name.endswith("_draws") and array.size == 0:
        return ""
    if array.ndim != len(letters):
        return f"has {array.ndim} dimensions, not {len(letters)}"
    for length, letter in zip(array.shape, letters, strict=True):
        if sizes.setdefault(letter, length) != length:
            return f"has the shape {array.shape}, which fits nothing else"
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return "contains NaN or infinity"
    classes = name in ("labels", "predicted_before", "predicted_after", "sample_labels")
    if classes and array.size and not 0 <= array.min() <= array.max() < sizes["C"]:
        return "names classes that do not exist"
    return ""
