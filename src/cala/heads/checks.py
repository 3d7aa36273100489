"""Checks of what users give; every error names the value and the fix."""

from __future__ import annotations

import math
import numbers
from typing import Any, overload

import numpy as np

from cala.core.fakes import FakePool
from cala.core.operating_point import OBJECTIVES
from cala.core.rows import Array, Features, StoredRows
from cala.errors import InputError
from cala.files import preview
from cala.registry import check_choice

SQUARABLE = 1e15  # squares of larger numbers overflow float32, those of its inverse vanish
PLURALS = {"X": "embeddings", "fake": "fake classes", "fake_shots": "shots of fake classes"}


@overload
def check_features(
    features: StoredRows, dim: int | None = None, dtype: Any = None
) -> StoredRows: ...
@overload
def check_features(features: Array, dim: int | None = None, dtype: Any = None) -> Array: ...
def check_features(features: Features, dim: int | None = None, dtype: Any = None) -> Features:
    """Finite, non-zero rows (n, d) in float32 or float64 (other numbers become float32).

    Rows on disk are checked by whoever reads them.
    """
    given = features if isinstance(features, StoredRows) else _floats(features, "X")
    shape = tuple(given.shape)
    if len(shape) != 2 or 0 in shape:
        detail = f"embeddings have shape {shape}"
        raise InputError(detail, "give at least one row, (n, d)", field="X", code="wrong_shape")
    if dim is not None and shape[1] != dim:
        raise InputError(
            f"embeddings have {shape[1]} dimensions, but the model was fitted with {dim}",
            "use the same encoder",
            field="X",
            code="wrong_dimensions",
        )
    if isinstance(given, StoredRows):
        return given
    dtype = given.dtype if dtype is None else dtype
    return (given if _plainly_fits(given) else _squarable(given, "X")).astype(dtype, copy=False)


def _floats(values: Any, field: str) -> Array:
    """Numbers in float32 or float64."""
    values = np.asarray(values)
    if values.dtype.kind not in "fiub":
        detail = f"{PLURALS[field]} are of type {values.dtype}"
        raise InputError(detail, "give numbers", field=field, code="not_numbers")
    return values if values.dtype == np.float64 else values.astype(np.float32, copy=False)


def _plainly_fits(features: Array) -> bool:
    """Whether lengths alone tell that squares fit into float32; cheaper than magnitudes.

    A row of d numbers and length l has a magnitude of at least l/√d and at most l. NaN and
    infinity have no length within bounds.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squared = np.einsum("nd,nd->n", features, features)
    low, high = features.shape[1] / SQUARABLE**2, SQUARABLE**2
    return bool(squared.min() >= low and squared.max() <= high)


def _squarable(vectors: Array, field: str) -> Array:
    """Vectors (…, d), all finite and none zero, scaled where their squares would not be numbers."""
    peak = np.maximum(vectors.max(-1), -vectors.min(-1))  # NaN stays NaN
    for bad, what, code in (
        (~np.isfinite(peak), "contain NaN or infinity", "not_finite"),
        (peak == 0, "are all zero", "all_zero"),
    ):
        if bad.any():
            detail = f"{PLURALS[field]} {what} in {rows_of(bad.reshape(len(bad), -1).any(1))}"
            raise InputError(detail, "remove them or check the encoder", field=field, code=code)
    fits = bool((peak >= 1 / SQUARABLE).all() and (peak <= SQUARABLE).all())
    return vectors if fits else vectors / peak[..., None]


def check_labels(labels: Any, rows: int) -> Array:
    """Integer labels, one per row."""
    labels = np.asarray(labels)
    if labels.shape != (rows,):
        detail = f"{rows} embeddings but labels of shape {labels.shape}"
        raise InputError(detail, "give one label per embedding", field="y")
    if labels.dtype.kind not in "iu":
        raise InputError(f"labels are {labels.dtype}", "give integers", field="y")
    return labels.astype(np.int64, copy=False)


def check_fakes(fakes: FakePool | None, dim: int) -> FakePool | None:
    """Finite fake classes of the right dimension, each with two images and two parents."""
    if fakes is None:
        return None
    features, pairs = _floats(fakes.features, "fake"), np.asarray(fakes.pairs)
    shape = features.shape
    if len(shape) != 3 or shape[2] != dim or shape[0] < 1 or shape[1] < 2:
        raise InputError(
            f"fake has shape {shape}",
            f"give (classes, images, {dim}) with at least two images each",
            field="fake",
        )
    with np.errstate(invalid="ignore"):
        numeric = pairs.dtype.kind in "iuf"
        whole = pairs.astype(np.int64, copy=False) if numeric else np.zeros(0, np.int64)
    parents = f"give the integers that name both parents of each of the {shape[0]} fake classes"
    if whole.shape != (shape[0], 2) or (whole != pairs).any():
        raise InputError(f"pairs is {pairs.dtype} of shape {pairs.shape}", parents, field="pairs")
    same = whole[:, 0] == whole[:, 1]
    if same.any():
        detail = f"pairs names one class twice in {rows_of(same)}"
        raise InputError(detail, parents, field="pairs", code="same_parents")
    shots = fakes.shots
    if shots is not None:
        shots = _squarable(_floats(shots, "fake_shots"), "fake_shots")
        if shots.shape != shape:
            detail = f"fake_shots has shape {shots.shape}"
            raise InputError(detail, f"give {shape}", field="fake_shots")
    return FakePool(_squarable(features, "fake"), whole, shots)


def check_holdout(holdout: Any, rows: int) -> Array | None:
    """One bool per row, at least one of them true."""
    if holdout is None:
        return None
    holdout = np.asarray(holdout)
    if holdout.shape != (rows,) or holdout.dtype != bool or not holdout.any():
        raise InputError(
            f"holdout is {holdout.dtype} of shape {holdout.shape} and marks "
            f"{np.count_nonzero(holdout)} rows",
            f'give one bool per row ({rows},), some of them true, or "all" if the encoder saw none',
            field="holdout",
        )
    return holdout


def check_operating_point(
    objective: str, max_base_loss: float | None = None, delta: float | None = None
) -> None:
    """A known objective, a fraction, a finite shift, and not two of them that contradict."""
    check_choice("objective", objective, OBJECTIVES)
    if max_base_loss is not None:
        check_number("max_base_loss", max_base_loss, 0, 1)
    if delta is not None:
        check_number("delta", delta, -math.inf)
    chosen = objective if objective != "accuracy" else None
    given = {"objective": chosen, "max_base_loss": max_base_loss, "delta": delta}
    named = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    if len(named) > 1:
        detail = f"{' and '.join(named)} both set the operating point"
        raise InputError(detail, "give one of them", code="two_operating_points")


def check_number(
    name: str,
    value: object,
    low: float = 0.0,
    high: float = math.inf,
    *,
    whole: bool = False,
    above: bool = False,
    below: bool = False,
    example: float | None = None,
) -> float:
    """A finite number from `low` to `high`, of any type but bool.

    whole : it has no fraction; above, below : `low` itself, `high` itself is not allowed
    example : a usual value, for the error

    >>> check_number("alpha", 0.5, 0, 1)
    0.5
    """
    number = float(value) if is_number(value) else math.nan  # type: ignore[arg-type]
    fits = math.isfinite(number) and low <= number <= high
    excluded = (above and number == low) or (below and number == high)
    if not fits or excluded or (whole and number % 1):
        kind = "a whole number" if whole else "a finite number"
        bounds = [f"{'greater than' if above else 'at least'} {low:g}"] if low > -math.inf else []
        bounds += [f"{'below' if below else 'at most'} {high:g}"] if high < math.inf else []
        bounds += [] if example is None else [f"such as {example:g}"]
        raise InputError(f"{name} is {value!r}", f"give {', '.join([kind, *bounds])}", field=name)
    return number


def number_or_auto(name: str, value: object, **limits: Any) -> float | str:
    """As `check_number`, or the string "auto"."""
    return "auto" if is_auto(value) else check_number(name, value, **limits)


def is_number(value: object) -> bool:
    """A real number of any type, NumPy's too, but not a bool."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_auto(value: object) -> bool:
    """The string "auto"; an array is never equal to it."""
    return isinstance(value, str) and value == "auto"


def rows_of(mask: Array) -> str:
    """'row 3' or 'rows 3, 5, 8, 9, 11 and 2 more'."""
    rows = np.flatnonzero(mask).tolist()
    return ("row " if len(rows) == 1 else "rows ") + preview(map(str, rows), 5)
