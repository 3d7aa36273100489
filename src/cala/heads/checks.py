"""Checks at the door: every refusal names the value and the fix."""

from __future__ import annotations

import math
import numbers
from typing import Any, overload

import numpy as np

from cala.core.fakes import FakePool
from cala.core.operating_point import OBJECTIVES
from cala.core.rows import Array, Features, StoredRows
from cala.errors import InputError
from cala.registry import check_choice

SQUARABLE = 1e15  # squares of larger numbers overflow float32, those of its inverse vanish


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
    if isinstance(features, StoredRows):
        _check_shape(features, dim)
        return features
    features = np.asarray(features)
    _check_shape(features, dim)
    if features.dtype != np.float64:
        features = features.astype(np.float32, copy=False)
    dtype = features.dtype if dtype is None else dtype
    if _plainly_fits(features):
        return features.astype(dtype, copy=False)
    peak = np.abs(features).max(1)
    bad = ~np.isfinite(peak)
    if bad.any():
        raise InputError(f"embeddings contain NaN or infinity in {rows_of(bad)}: remove those rows")
    zero = peak == 0
    if zero.any():
        raise InputError(
            f"embeddings are all zero in {rows_of(zero)}: a zero vector has no direction; "
            "remove those rows or check the encoder"
        )
    fits = bool((peak >= 1 / SQUARABLE).all() and (peak <= SQUARABLE).all())
    return (features if fits else features / peak[:, None]).astype(dtype, copy=False)


def _check_shape(features: Features, dim: int | None) -> None:
    if len(features.shape) != 2 or 0 in features.shape:
        raise InputError(
            f"embeddings have shape {tuple(features.shape)}: give at least one row, (n, d)"
        )
    if dim is not None and features.shape[1] != dim:
        raise InputError(
            f"embeddings have {features.shape[1]} dimensions, but the model was fitted with {dim}: "
            "use the same encoder"
        )


def _plainly_fits(features: Array) -> bool:
    """Whether lengths alone tell that squares fit into float32; cheaper than magnitudes.

    A row of d numbers and length l has a magnitude of at least l/√d and at most l. NaN and
    infinity have no length within bounds.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squared = np.einsum("nd,nd->n", features, features)
    low, high = features.shape[1] / SQUARABLE**2, SQUARABLE**2
    return bool(squared.min() >= low and squared.max() <= high)


def check_labels(labels: Any, rows: int) -> Array:
    """Integer labels, one per row."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or len(labels) != rows:
        raise InputError(
            f"{rows} embeddings but labels of shape {tuple(labels.shape)}: "
            "give one label per embedding"
        )
    if labels.dtype.kind not in "iu":
        raise InputError(f"labels are {labels.dtype}: heads take integer labels")
    return labels.astype(np.int64, copy=False)


def check_fakes(fakes: FakePool | None, dim: int) -> FakePool | None:
    """Finite fake classes of the right dimension, each with two images and two parents."""
    if fakes is None:
        return None
    shape = tuple(fakes.features.shape)
    if len(shape) != 3 or shape[2] != dim or min(shape[:2]) < 1 or shape[1] < 2:
        raise InputError(
            f"fake has shape {shape}: give (classes, images, {dim}) with at least two images each"
        )
    if tuple(fakes.pairs.shape) != (shape[0], 2):
        raise InputError(
            f"pairs has shape {tuple(fakes.pairs.shape)}: give the two parents of each of the "
            f"{shape[0]} fake classes"
        )
    same = fakes.pairs[:, 0] == fakes.pairs[:, 1]
    if same.any():
        raise InputError(f"pairs names one class twice in {rows_of(same)}: mix two classes")
    if fakes.shots is not None and fakes.shots.shape != shape:
        raise InputError(f"shots of fake classes are {fakes.shots.shape}", f"give {shape}")
    return fakes.mapped(_squarable)


def _squarable(fake: Array) -> Array:
    """Fake classes whose squares are numbers; those that cannot be scaled so are refused."""
    peak = np.maximum(fake.max(2), -fake.min(2))  # NaN stays NaN
    bad = ~np.isfinite(peak).all(1)
    if bad.any():
        raise InputError(f"fake contains NaN or infinity in {rows_of(bad)}: remove those classes")
    zero = (peak == 0).any(1)
    if zero.any():
        raise InputError(f"fake has all-zero images in {rows_of(zero)}: remove those classes")
    fits = bool((peak >= 1 / SQUARABLE).all() and (peak <= SQUARABLE).all())
    return fake if fits else fake / peak[..., None]


def check_holdout(holdout: Any, rows: int) -> Array | None:
    """One bool per row, at least one of them true."""
    if holdout is None:
        return None
    holdout = np.asarray(holdout)
    if tuple(holdout.shape) != (rows,) or holdout.dtype != bool:
        raise InputError(
            f"holdout is {holdout.dtype} of shape {tuple(holdout.shape)}: give one bool per row "
            f'({rows},), or "all" if the encoder saw none of them'
        )
    if not holdout.any():
        raise InputError('holdout marks no row: leave it out, or pass "all"')
    return holdout


def check_operating_point(
    objective: str, max_base_loss: float | None = None, delta: float | None = None
) -> None:
    """A known objective, a fraction, a finite shift, and not two of them that contradict."""
    check_choice("objective", objective, OBJECTIVES)
    loss = max_base_loss
    if loss is not None and not (is_number(loss) and 0 <= loss <= 1):
        raise InputError(f"max_base_loss is {loss!r}: give a fraction, such as 0.01")
    if delta is not None and not (is_number(delta) and math.isfinite(delta)):
        raise InputError(f"delta is {delta!r}: give a finite number")
    given = {
        "objective": objective if objective != "accuracy" else None,
        "max_base_loss": max_base_loss,
        "delta": delta,
    }
    named = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise InputError(f"{' and '.join(named)} are two operating points: give one of them")


def is_number(value: object) -> bool:
    """A real number of any make, NumPy's too; a bool is none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_auto(value: object) -> bool:
    """The string "auto"; an array is never equal to it."""
    return isinstance(value, str) and value == "auto"


def rows_of(mask: Array, most: int = 5) -> str:
    """'row 3' or 'rows 3, 5, 8 and 2 more'."""
    rows = np.flatnonzero(mask).tolist()
    more = f" and {len(rows) - most} more" if len(rows) > most else ""
    return ("row " if len(rows) == 1 else "rows ") + ", ".join(map(str, rows[:most])) + more
