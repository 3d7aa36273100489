"""Embeddings as NumPy arrays and back: a cluster's object store gives these without a copy."""

from __future__ import annotations

import warnings
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T")


def as_arrays(thing: T) -> T:
    """The same dataclass with arrays in place of tensors, however deep.

    >>> from cala.core.mixing import FakePool
    >>> as_arrays(FakePool(torch.ones(1, 1), torch.zeros(1, 2))).features
    array([[1.]], dtype=float32)
    """
    return _mapped(thing, lambda value: value.numpy() if isinstance(value, Tensor) else value)


def as_tensors(thing: T) -> T:
    """The way back; tensors share the arrays' memory, which nothing may write to."""
    with warnings.catch_warnings():
        # torch warns of arrays that cannot be written: that is what is wanted here.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return _mapped(thing, lambda v: torch.from_numpy(v) if isinstance(v, np.ndarray) else v)


def _mapped(thing: Any, change: Any) -> Any:
    if is_dataclass(thing) and not isinstance(thing, type):
        values = {f.name: _mapped(getattr(thing, f.name), change) for f in fields(thing)}
        return replace(thing, **values)
    if isinstance(thing, dict):
        return {key: _mapped(value, change) for key, value in thing.items()}
    return change(thing)
