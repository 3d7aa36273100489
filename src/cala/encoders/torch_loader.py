"""`torch:module.path:factory`: a module of your own.

Loading such an encoder imports `module.path` and calls `factory()`, so it runs that Python code
with your rights: use only code that you trust. The current folder is searched first.

`factory()` returns an `nn.Module` that maps (n, 3, size, size) to (n, d). It may have a `transform`
(a `cala.encoders.Transform`); without one, images are prepared as for ImageNet at 224 pixels.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from cala.encoders.base import Encoder
from cala.encoders.torch_module import from_module, probe
from cala.encoders.transform import Transform
from cala.errors import InputError, UnknownNameError
from cala.files import first_line
from cala.registry import unknown

DEFAULT = Transform(size=224, resize=256)


def load_torch(rest: str, device: torch.device | str = "cpu") -> Encoder:
    """Load `torch:module.path:factory`, which runs the code of that module."""
    uri = f"torch:{rest}"
    path, _, factory = rest.partition(":")
    if not (path and factory):
        fix = "write it as torch:module.path:factory"
        raise InputError(f"{uri} names no factory", fix, field="encoder")
    home, module = _make(uri, path, factory)
    transform = getattr(module, "transform", None)
    transform = DEFAULT if transform is None else transform
    if not isinstance(transform, Transform):
        kind = type(transform).__name__
        detail = f"{uri}: `transform` is a {kind}, not a cala.encoders.Transform"
        raise InputError(detail, field="transform")
    found = probe(module, transform.size, uri)
    given = getattr(module, "dim", found)
    if given != found:
        detail = f"{uri} has dim {given!r}, but returns {found} values per image"
        raise InputError(detail, field="dim")
    module.dim = found  # type: ignore[assignment]
    architecture, about = f"{rest} {source_digest(module, home)}", {"class": type(module).__name__}
    return from_module(uri, module, transform, architecture, device, about=about)


def _make(uri: str, path: str, factory: str) -> tuple[ModuleType, nn.Module]:
    """Import a module and call its factory, with the current folder on the path meanwhile."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        home = import_module(path)
        make: Any = getattr(home, factory, None)
        if not callable(make):
            known = [name for name in vars(home) if not name.startswith("_")]
            raise unknown(f"factory in {path}", factory, known, "encoder")
        module = make()
    except UnknownNameError:
        raise
    except Exception as error:  # the user's code can raise anything
        kind = type(error).__name__
        detail = f"{uri} cannot be loaded ({kind}: {first_line(error)})"
        raise InputError(detail, code="not_loaded") from error
    finally:
        sys.path.remove(here)
    if not isinstance(module, nn.Module):
        kind = type(module).__name__
        detail = f"{uri}: {factory}() returned {kind}, not torch.nn.Module"
        raise InputError(detail, code="not_a_module")
    return home, module


def source_digest(module: nn.Module, *others: Any) -> str:
    """Digest everything besides the weights that decides what a module computes.

    That is its layers as printed, the plain values that it and they hold, and the files that
    define their classes and `others`: equal weights under another `forward` embed differently.
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
    """Return a value as text without its address in memory, which differs every time."""
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
    """Return the file that defines a class or module; torch's own print all that matters."""
    path = None
    if getattr(kind, "__module__", "").partition(".")[0] != "torch":
        with suppress(OSError, TypeError):
            path = inspect.getsourcefile(kind)
    return Path(path) if path and Path(path).is_file() else None
