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
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from cala.encoders.base import Encoder, from_module
from cala.encoders.extras import one_line, probe
from cala.encoders.transform import Transform
from cala.errors import InputError, UnknownNameError
from cala.registry import unknown

DEFAULT = Transform(size=224, resize=256)


def torch_door(rest: str, device: torch.device | str = "cpu") -> Encoder:
    uri = f"torch:{rest}"
    path, colon, factory = rest.partition(":")
    if not (path and colon and factory):
        raise InputError(f"{uri} should read torch:module.path:factory")
    with current_folder():
        home = _import(uri, path)
        module = _make(uri, home, factory)
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
        architecture=f"{rest} {source_digest(module, home)}",
        device=device,
        about={"class": type(module).__name__},
    )


def _import(uri: str, path: str) -> ModuleType:
    try:
        return import_module(path)
    except Exception as error:  # importing runs code
        raise InputError(f"{uri}: {path} cannot be imported ({one_line(error)})") from error


def _make(uri: str, home: ModuleType, factory: str) -> nn.Module:
    make: Any = getattr(home, factory, None)
    if not callable(make):
        known = [name for name in vars(home) if not name.startswith("_")]
        raise UnknownNameError(unknown(f"factory in {home.__name__}", factory, known))
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


def source_digest(module: nn.Module, *others: Any) -> str:
    """Of all that decides what a module does beside its weights.

    That is its layers as printed, the plain values that it and they hold, and the files that
    define their classes and `others`: equal weights under another `forward` embed otherwise.
    """
    digest = hashlib.sha256(repr(module).encode())
    kinds: set[Any] = set(others)
    for name, part in module.named_modules():
        kinds.update(kind for kind in type(part).__mro__ if kind is not object)
        for key, value in sorted(vars(part).items()):
            if not key.startswith("_") and key != "training":
                digest.update(f"{name} {key} {_plain(value)}".encode())
    files = {path for kind in kinds if (path := _file(kind)) is not None}
    contents = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in files)
    digest.update(" ".join(contents).encode())
    return digest.hexdigest()


def _plain(value: Any) -> str:
    """A value as text without an address in memory, which would differ every time."""
    if isinstance(value, torch.Tensor):
        values = value.detach().cpu().contiguous().reshape(-1)
        return hashlib.sha256(values.view(torch.uint8).numpy().tobytes()).hexdigest()
    if isinstance(value, np.ndarray):
        return hashlib.sha256(value.tobytes()).hexdigest()
    if isinstance(value, list | tuple | set | frozenset):
        parts = [_plain(v) for v in value]
        return str(parts if isinstance(value, list | tuple) else sorted(parts))
    if isinstance(value, dict):
        return str([(str(k), _plain(v)) for k, v in value.items()])
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    return getattr(value, "__qualname__", type(value).__qualname__)


def _file(kind: Any) -> Path | None:
    """Where a class or module is written; torch's own are known by what they print."""
    if getattr(kind, "__module__", "").partition(".")[0] == "torch":
        return None
    try:
        path = inspect.getsourcefile(kind)
    except (OSError, TypeError):
        return None
    return Path(path) if path and Path(path).is_file() else None
