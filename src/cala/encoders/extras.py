"""Libraries that not every installation has."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from cala.errors import InputError, install
from cala.files import reason


def import_extra(module: str, extra: str) -> Any:
    """A module of an optional library, or an error that names the extra to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(
            f"this needs {module}, which is not installed ({reason(error)}): {install(extra)}"
        ) from error
    except Exception as error:  # a broken installation fails with whatever comes first
        hint = ""
        if "torchvision" in str(error):
            hint = "; torchvision does not fit torch here: install both from the same source"
        raise InputError(f"{module} cannot be imported ({one_line(error)}){hint}") from error


def one_line(error: BaseException) -> str:
    """The first line of a message of another library, at most 200 characters."""
    return reason(error).split("\\n")[0][:200] or type(error).__name__


@torch.no_grad()
def probe(module: torch.nn.Module, size: int, name: str) -> int:
    """The dimension of a module's embeddings, by one pass over a black image."""
    try:
        found = module.eval()(torch.zeros(1, 3, size, size))
    except Exception as error:  # anything can go wrong in a foreign module
        raise InputError(
            f"{name} does not take 1×3×{size}×{size} images ({one_line(error)})"
        ) from error
    if not isinstance(found, Tensor) or found.ndim != 2 or found.shape[0] != 1:
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise InputError(f"{name} gives {shape} for one image, not (1, d) embeddings")
    return int(found.shape[1])
