"""The user's own labels: strings or numbers of one type, kept exactly as they came."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.errors import InputError

Labels = NDArray[Any]

#: In the order in which they are looked for: a bool is a number too.
_KINDS: dict[str, Any] = {"strings": str, "booleans": (bool, np.bool_), "numbers": numbers.Real}

USE_STRINGS = "use strings for all classes, such as [str(label) for label in y]"


def given_labels(y: Any) -> Any:
    """y as an array of one type that holds exactly what was given.

    To be called before scikit-learn and NumPy see the labels: these make floats of pandas'
    integers, strings of a mixed list, and one number of two large ones beside a float.

    >>> given_labels(["b", "a"]).tolist()
    ['b', 'a']
    """
    dtype = getattr(y, "dtype", None)
    if y is None or (isinstance(dtype, np.dtype) and dtype.kind not in "OS"):
        return y
    objects = np.asarray(y, dtype=object)
    flat = [_scalar(label) for label in objects.ravel().tolist()]
    kinds = {_kind_of(label, row) for row, label in enumerate(flat)}
    if len(kinds) > 1:
        raise _mixed(kinds)
    typed = _strings(flat) if kinds == {"strings"} else _numbers(flat)
    return typed.reshape(objects.shape)


def labels_like(y: Labels, classes: Labels) -> Labels:
    """Labels (n,) in the type of known classes (C,), where that changes none; strings may widen."""
    kinds = {_kind(y.dtype), _kind(classes.dtype)}
    if len(kinds) > 1:
        raise _mixed(kinds)
    if y.dtype == classes.dtype or kinds == {"strings"}:
        return y
    with np.errstate(invalid="ignore", over="ignore"):
        cast = y.astype(classes.dtype)
    for before, after in zip(y.tolist(), cast.tolist(), strict=True):
        if before != after:
            raise InputError(
                f"label {before!r} cannot be kept as {classes.dtype}, the type of fit's labels",
                "use another label, or fit with labels of a wider type",
                field="y",
                code="label_type",
            )
    return cast


def find_label(label: Any, classes: Labels) -> int | None:
    """The column of a label among classes (C,); None if it is unknown or of another kind."""
    try:
        one = given_labels([label])
    except InputError:
        return None
    names = classes.tolist()
    if one.ndim != 1 or _kind(one.dtype) != _kind(classes.dtype) or one.tolist()[0] not in names:
        return None
    return int(names.index(one.tolist()[0]))


def _scalar(label: Any) -> Any:
    """What an array or tensor without dimensions holds; everything else as it is."""
    bare = isinstance(label, np.generic) or getattr(label, "ndim", None) != 0
    return label if bare else label.item()


def _kind(dtype: np.dtype[Any]) -> str:
    return {"U": "strings", "b": "booleans"}.get(dtype.kind, "numbers")


def _kind_of(label: Any, row: int) -> str:
    if isinstance(label, bytes):
        fix = "decode them to strings, such as label.decode()"
        raise InputError("labels are bytes", fix, field="y", code="label_type")
    # pandas has missing values of its own, which are neither None nor NaN.
    unknown = label is None or type(label).__name__ in ("NAType", "NaTType")
    if unknown or (isinstance(label, numbers.Real) and label != label):
        detail = f"the label of row {row} is {label!r}"
        raise InputError(detail, "give every row a label", field="y", code="no_label")
    for kind, types in _KINDS.items():
        if isinstance(label, types):
            return kind
    raise InputError(
        f"the label of row {row} is {label!r}, a {type(label).__name__}",
        "use strings or numbers",
        field="y",
        code="label_type",
    )


def _strings(labels: list[str]) -> Labels:
    for label in labels:
        if label.endswith("\0"):  # NumPy drops these, and two labels would become one
            detail = f"label {label!r} ends with a null character"
            raise InputError(detail, "remove it", field="y", code="null_character")
    return np.array(labels, dtype=str)


def _numbers(labels: list[Any]) -> Labels:
    typed = np.array(labels)
    whole = bool(labels) and all(isinstance(label, numbers.Integral) for label in labels)
    if whole and typed.dtype.kind not in "iub":
        try:
            typed = np.array([int(label) for label in labels], dtype=np.uint64)
        except OverflowError:
            detail = f"labels from {min(labels)} to {max(labels)} do not fit into 64 bits"
            raise InputError(detail, USE_STRINGS, field="y", code="label_type") from None
    for label, kept in zip(labels, typed.tolist(), strict=True):
        if label != kept:
            detail = f"label {label!r} would become {kept!r} beside the others"
            fix = f"use whole numbers only, or {USE_STRINGS}"
            raise InputError(detail, fix, field="y", code="label_type")
    return typed


def _mixed(kinds: set[str]) -> InputError:
    first, second = [kind for kind in _KINDS if kind in kinds][:2]
    detail = f"labels mix {first} and {second}"
    return InputError(detail, USE_STRINGS, field="y", code="mixed_labels")
