"""What the user passes besides X and y: every refusal names the value and the fix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cala.core.fakes import FakePool
from cala.errors import InputError
from cala.heads import HEADS, Head
from cala.heads.factory import split_name
from cala.registry import check_choice


def whole_number(name: str, value: Any) -> int | None:
    """A whole number from 1 on, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} is {value!r}: give a whole number, at least 1")
    return int(value)


def shot_numbers(shots: Any) -> tuple[int | None, ...]:
    """One number of shots or several, as a tuple."""
    several = shots if isinstance(shots, tuple | list) else (shots,)
    return tuple(whole_number("shots", k) for k in several)


def rejection_rate(value: Any) -> float:
    """A share strictly between 0 and 1."""
    number = isinstance(value, float | int | np.number) and not isinstance(value, bool)
    if not number or not 0 < value < 1:
        raise InputError(
            f"rate is {value!r}: give the share of genuine images that may be called unknown, "
            "such as 0.05"
        )
    return float(value)


def seed_of(random_state: Any) -> int:
    """The seed itself, or one drawn from a RandomState."""
    if random_state is None or isinstance(random_state, np.random.RandomState):
        from sklearn.utils import check_random_state

        return int(check_random_state(random_state).randint(2**31 - 1))
    if not isinstance(random_state, int | np.integer) or not 0 <= random_state < 2**64:
        raise InputError(
            f"random_state is {random_state!r}: give a whole number from 0 to 2**64 - 1, a "
            "RandomState or None"
        )
    return int(random_state)


def check_frozen(method: str) -> None:
    """Raise for a method that would have to train an encoder."""
    if HEADS[split_name(method)[0]].traits.changes_encoder:
        raise InputError(
            f'method "{method}" trains its encoder on images in every session: it runs on the '
            "bench (`cala run`); choose a method over embeddings, such as cala-plus"
        )


def check_adapted(method: str, head: Head) -> None:
    """Without an adapter there is no trade-off to move along."""
    if not head.adapted:
        raise InputError(
            f'method "{method}" has no adapter and no operating point: '
            'use "la", "cala" or "cala-plus"'
        )


def untracked(X: Any) -> Any:
    """A tensor of torch as an array; anything else as it is."""
    if not any((kind.__module__, kind.__name__) == ("torch", "Tensor") for kind in type(X).__mro__):
        return X
    X = X.detach().cpu()
    return (X.float() if str(X.dtype) == "torch.bfloat16" else X).numpy()


def finite_rows(X: Any, dim: int | None) -> NDArray[Any]:
    """Numbers (n, dim), all finite."""
    rows = _array("X", X)
    if rows.ndim != 2 or 0 in rows.shape or rows.dtype.kind not in "fiub":
        raise InputError(
            f"X has shape {rows.shape} and type {rows.dtype}: give numbers (n, d), at least one row"
        )
    if dim is not None and rows.shape[1] != dim:
        raise InputError(f"X has {rows.shape[1]} columns: give {dim}, as in fit")
    if not np.isfinite(rows).all():
        raise InputError("X contains NaN or infinity: leave such rows out")
    return rows


def as_floats(X: NDArray[Any]) -> NDArray[Any]:
    """float32 or float64, contiguous; other number types become float32."""
    kept = X if X.dtype in (np.float32, np.float64) else X.astype(np.float32)
    return np.ascontiguousarray(kept)


def fake_pool(
    fake: ArrayLike | None, pairs: ArrayLike | None, shots: ArrayLike | None = None
) -> FakePool | None:
    """Fake classes (P, M, d) and their parents (P, 2); without `pairs` no two share a parent.

    shots : (P, M, d), the same images as they are embedded when they are shots
    """
    if fake is None:
        if pairs is not None or shots is not None:
            raise InputError(
                "pairs or fake_shots given without fake", "give the fake classes too", field="fake"
            )
        return None
    features, seen = (
        None if given is None else _fake(name, given)
        for name, given in (("fake", fake), ("fake_shots", shots))
    )
    assert features is not None
    parents = np.arange(2 * len(features)).reshape(-1, 2) if pairs is None else _whole_pairs(pairs)
    return FakePool(features, parents, seen)


def _fake(name: str, given: ArrayLike) -> NDArray[Any]:
    array = _array(name, given)
    if array.ndim != 3 or array.dtype.kind not in "fiub":
        raise InputError(
            f"{name} has shape {array.shape} and type {array.dtype}: give numbers "
            "(classes, images, dimensions)"
        )
    return as_floats(array)


def _whole_pairs(pairs: ArrayLike) -> NDArray[np.int64]:
    given = _array("pairs", pairs)
    if given.dtype.kind not in "iuf":
        raise InputError(f"pairs is {given.dtype}: give whole numbers that name base classes")
    with np.errstate(invalid="ignore"):
        whole = given.astype(np.int64)
    if not np.array_equal(whole, given):
        bad = given[whole != given][0]
        raise InputError(f"pairs contains {bad}: give whole numbers that name base classes")
    return whole


def holdout_mask(holdout: ArrayLike | str | None, rows: int) -> NDArray[np.bool_] | None:
    """One bool per row, "all" or None."""
    if holdout is None:
        return None
    if isinstance(holdout, str):
        check_choice("holdout", holdout, ("all",))
        return np.ones(rows, dtype=bool)
    given = _array("holdout", holdout)
    if given.dtype == object and all(isinstance(x, bool | np.bool_) for x in given.ravel()):
        given = given.astype(bool)  # pandas' own boolean type arrives as objects
    if given.dtype != bool:
        raise InputError(
            f"holdout is {given.dtype} of shape {given.shape}: give one bool per row ({rows},), "
            'or "all" if the encoder saw none of them'
        )
    return given


def _array(name: str, values: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(untracked(values))
    except ValueError as error:  # lists of unequal length
        raise InputError(f"{name} is no array ({error}): give one of equal rows") from None
