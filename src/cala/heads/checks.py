"""Checks at the door: every refusal names the value and the fix."""

from __future__ import annotations

import math
import numbers
from dataclasses import replace
from typing import TYPE_CHECKING, overload

import torch
from torch import Tensor

from cala.core.mixing import FakePool
from cala.core.operating_point import OBJECTIVES
from cala.core.stored_rows import Features, StoredRows
from cala.errors import InputError
from cala.registry import check_choice

if TYPE_CHECKING:
    from cala.heads.base import Head

SQUARABLE = 1e15  # squares of larger numbers overflow float32, those of its inverse vanish


@overload
def check_features(
    features: StoredRows, dim: int | None = None, dtype: torch.dtype | None = None
) -> StoredRows: ...
@overload
def check_features(
    features: Tensor, dim: int | None = None, dtype: torch.dtype | None = None
) -> Tensor: ...
def check_features(
    features: Features, dim: int | None = None, dtype: torch.dtype | None = None
) -> Features:
    """Finite, non-zero rows (n, d) in float32 or float64 (half precision is widened).

    Rows on the disk are checked by whoever reads them.
    """
    if isinstance(features, StoredRows):
        _check_shape(features, dim)
        return features
    features = torch.as_tensor(features)
    _check_shape(features, dim)
    if features.dtype != torch.float64:
        features = features.to(torch.float32)
    dtype = features.dtype if dtype is None else dtype
    if _plainly_fits(features):
        return features.to(dtype)
    peak = _peak(features)
    bad = ~peak[:, 0].isfinite()
    if bool(bad.any()):
        raise InputError(f"embeddings contain NaN or infinity in {rows_of(bad)}: remove those rows")
    zero = peak[:, 0] == 0
    if bool(zero.any()):
        raise InputError(
            f"embeddings are all zero in {rows_of(zero)}: a zero vector has no direction; "
            "remove those rows or check the encoder"
        )
    return (features if _fits(peak) else features / peak).to(dtype)


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


def check_streams(head: Head, features: Features) -> None:
    """Only some heads can learn from rows that are not in memory."""
    if isinstance(features, StoredRows) and not head.streams:
        raise InputError(
            f"{head.name} needs all training embeddings in memory: give it an embeddings file "
            "(.npz, .safetensors), or choose a method that streams, such as cala or cala-plus"
        )


def _plainly_fits(features: Tensor) -> bool:
    """Whether lengths alone tell that `_fits`; they cost a tenth of what magnitudes do.

    A row of d numbers and length l has a magnitude of at least l/√d and at most l. NaN and
    infinity have no length within bounds.
    """
    low, high = torch.linalg.vector_norm(features, dim=1).aminmax()
    return bool((low >= features.shape[1] ** 0.5 / SQUARABLE) & (high <= SQUARABLE))


def _peak(features: Tensor) -> Tensor:
    """The largest magnitude of each row, NaN if one is: (..., d) -> (..., 1), without a copy."""
    low, high = features.aminmax(dim=-1, keepdim=True)
    return torch.maximum(-low, high)


def _fits(peak: Tensor) -> bool:
    """Whether squares of such magnitudes fit into float32; those of NaN do not."""
    low, high = peak.aminmax()
    return bool((low >= 1 / SQUARABLE) & (high <= SQUARABLE))


def check_labels(labels: Tensor, features: Features) -> Tensor:
    """Integer labels, one per row of `features`."""
    labels = torch.as_tensor(labels, device=features.device)
    if labels.ndim != 1 or len(labels) != len(features):
        raise InputError(
            f"{len(features)} embeddings but labels of shape {tuple(labels.shape)}: "
            "give one label per embedding"
        )
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise InputError(f"labels are {labels.dtype}: heads take integer labels")
    return labels.to(torch.int64)


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
    peak = _peak(fakes.features)
    bad = ~peak.isfinite().flatten(1).all(1)
    if bool(bad.any()):
        raise InputError(f"fake contains NaN or infinity in {rows_of(bad)}: remove those classes")
    zero = (peak == 0).flatten(1).any(1)
    if bool(zero.any()):
        raise InputError(f"fake has all-zero images in {rows_of(zero)}: remove those classes")
    same = fakes.pairs[:, 0] == fakes.pairs[:, 1]
    if bool(same.any()):
        raise InputError(f"pairs names one class twice in {rows_of(same)}: mix two classes")
    return fakes if _fits(peak) else replace(fakes, features=fakes.features / peak)


def check_holdout(holdout: Tensor | None, rows: int) -> Tensor | None:
    """One bool per row, at least one of them true."""
    if holdout is None:
        return None
    holdout = torch.as_tensor(holdout)
    if tuple(holdout.shape) != (rows,) or holdout.dtype != torch.bool:
        kind = str(holdout.dtype).removeprefix("torch.")
        raise InputError(
            f"holdout is {kind} of shape {tuple(holdout.shape)}: give one bool per row ({rows},), "
            'or "all" if the encoder saw none of them'
        )
    if not bool(holdout.any()):
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


def rows_of(mask: Tensor, most: int = 5) -> str:
    """'row 3' or 'rows 3, 5, 8 and 2 more'."""
    rows = mask.nonzero()[:, 0].tolist()
    more = f" and {len(rows) - most} more" if len(rows) > most else ""
    return ("row " if len(rows) == 1 else "rows ") + ", ".join(map(str, rows[:most])) + more
