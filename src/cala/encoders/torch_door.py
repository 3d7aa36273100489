"""`torch:module.path:factory`: any module of one's own.

`factory()` returns an `nn.Module` that maps (n, 3, size, size) to (n, d). It may have a `transform`
(a `cala.encoders.Transform`); without one, images are prepared as for ImageNet at 224 pixels.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cala.encoders.base import Encoder, from_module
from cala.encoders.extras import one_line, probe
from cala.encoders.registry import DOORS
from cala.encoders.transform import Transform
from cala.errors import InputError, UnknownNameError
from cala.registry import unknown

DEFAULT = Transform(size=224, resize=256)


@DOORS.register("torch", "torch:module.path:factory, any module of your own")
def torch_door(rest: str, device: torch.device | str = "cpu") -> Encoder:
    uri = f"torch:{rest}"
    path, colon, factory = rest.partition(":")
    if not (path and colon and factory):
        raise InputError(f"{uri} should read torch:module.path:factory")
    with current_folder():
        module = _make(uri, path, factory)
    transform = getattr(module, "transform", None)
    if transform is None:
        transform = DEFAULT
    elif not isinstance(transform, Transform):
        kind = type(transform).__name__
        raise InputError(f"{uri}: `transform` is a {kind}, not a cala.encoders.Transform")
    found = probe(module, transform.size, uri)
    given = getattr(module, "dim", found)
    if given != found:
        raise InputError(f"{uri} says dim {given!r}, but gives {found} numbers per image")
    module.dim = found  # type: ignore[assignment]
    return from_module(
        uri,
        module,
        transform,
        architecture=f"{rest} {source_digest(module)}",
        device=device,
        about={"class": type(module).__name__},
    )


def _make(uri: str, path: str, factory: str) -> nn.Module:
    try:
        home = import_module(path)
    except Exception as error:  # importing runs code
        raise InputError(f"{uri}: {path} cannot be imported ({one_line(error)})") from error
    make: Any = getattr(home, factory, None)
    if not callable(make):
        known = [name for name in vars(home) if not name.startswith("_")]
        raise UnknownNameError(unknown(f"factory in {path}", factory, known))
    try:
        module = make()
    except Exception as error:
        kind = type(error).__name__
        raise InputError(f"{uri}: {factory}() failed ({kind}: {one_line(error)})") from error
    if not isinstance(module, nn.Module):
        kind = type(module).__name__
        raise InputError(f"{uri}: {factory}() gave a {kind}, not a torch.nn.Module")
    return module


@contextmanager
def current_folder() -> Iterator[None]:
    """The current folder is searched first, only as long as the block runs."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def source_digest(module: nn.Module) -> str:
    """Of the code of a module's class: equal weights under another `forward` embed otherwise."""
    try:
        text = inspect.getsource(type(module))
    except (OSError, TypeError):
        text = repr(module)
    return hashlib.sha256(text.encode()).hexdigest()
