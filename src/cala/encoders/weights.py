"""An encoder in one file: safetensors with everything that is known about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from cala import storage
from cala.core.rows import Array
from cala.data.embedding_files import PART
from cala.encoders.base import Encoder
from cala.encoders.registry import ARCHITECTURES, Device
from cala.encoders.torch_module import from_module
from cala.encoders.transform import Transform
from cala.encoders.views import MOST_VIEWS, VIEWS, with_views
from cala.errors import InputError
from cala.files import reason, shown

_BEFORE_KINDS = 1  # the format of files that were written before storage files had kinds


def save_encoder(
    path: Path,
    module: nn.Module,
    *,
    architecture: str,
    transform: Transform,
    scale: float | None = None,
    holdout: frozenset[str] = frozenset(),
    trained: frozenset[str] = frozenset(),
    parts: Mapping[str, Tensor] | None = None,
    about: dict[str, Any] | None = None,
    half: bool = False,
) -> None:
    """Write a module's weights; `half` stores them in half precision.

    parts : what was trained together with it, for the method's head
    """
    everything = {**module.state_dict(), **{PART + k: v for k, v in (parts or {}).items()}}
    arrays = {
        name: tensor.detach().cpu().numpy()
        for name, tensor in everything.items()
        if not name.endswith("num_batches_tracked")
    }
    meta = {
        "architecture": architecture,
        "transform": transform.as_dict(),
        "scale": scale,
        "holdout": sorted(holdout),
        "trained": sorted(trained),
        "about": about or {},
    }
    _write(path, meta, arrays, half)


def halve_encoder(source: Path, target: Path) -> None:
    """Write the same encoder to another file, with weights in half precision."""
    _write(target, *_read(source), half=True)


def _write(path: Path, meta: dict[str, Any], arrays: dict[str, Array], half: bool) -> None:
    for name, array in arrays.items():
        if half and array.dtype.kind == "f":
            with np.errstate(over="ignore"):
                arrays[name] = array.astype(np.float16)
        if not np.isfinite(arrays[name]).all():
            raise InputError(
                f"{shown(path)} was not written, because {name} holds NaN or infinity",
                "the encoder is broken; train it again with a lower --lr",
                code="not_finite",
            )
    storage.write(path, "encoder", meta, arrays)


def load_encoder_file(path: Path, name: str | None = None, device: Device = "cpu") -> Encoder:
    """The encoder in a file that `save_encoder` wrote."""
    meta, arrays = _read(path)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    try:
        architecture = meta["architecture"]
        module = ARCHITECTURES[architecture]()
        transform = Transform.from_dict(meta["transform"])
        known: dict[str, Any] = {
            "scale": None if meta["scale"] is None else float(meta["scale"]),
            "holdout": frozenset(map(str, meta["holdout"])),
            "trained": frozenset(map(str, meta.get("trained", ()))),
            "about": dict(meta["about"]),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{shown(path)} does not describe its encoder ({reason(error)})",
            "use a file that `cala train` wrote",
            field="path",
            code="bad_header",
        ) from error
    load_weights(module, tensors, shown(path), architecture)
    parts = {
        name.removeprefix(PART): array.astype(np.float32)
        for name, array in arrays.items()
        if name.startswith(PART)
    }
    views = _views(parts, path)
    architecture += "" if views == 1 else f" {views} views"
    module = with_views(module, views)
    name = name or str(path)
    return from_module(name, module, transform, architecture, device, parts=parts, **known)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    return storage.read(path, "encoder", old=_old_meta)


def _old_meta(header: dict[str, str]) -> dict[str, Any]:
    meta: dict[str, Any] = json.loads(header.get("cala", "{}"))
    if meta.pop("format") != _BEFORE_KINDS:
        raise ValueError("its format is not known")
    return meta


def _views(parts: dict[str, NDArray[np.float32]], path: Path) -> int:
    """How many views of an image the encoder was trained to look at."""
    given = parts.get(VIEWS, np.ones(1)).flatten().tolist()
    if len(given) != 1 or given[0] not in range(1, MOST_VIEWS + 1):
        detail = f"{shown(path)} states {given} views of an image"
        raise InputError(detail, f"use 1 to {MOST_VIEWS}", field="views")
    return int(given[0])


def stated_training(path: Path) -> tuple[dict[str, Any], frozenset[str], frozenset[str]]:
    """`about`, `trained` and `holdout` of an encoder of `cala train`; empty for other weights."""
    meta: dict[str, Any] = {}
    if path.suffix == ".safetensors":
        try:
            meta, _ = _read(path)
        except InputError as error:
            if error.code != "other_kind":
                raise
    about, *lists = (meta.get(key) for key in ("about", "trained", "holdout"))
    trained, holdout = (frozenset(map(str, x if isinstance(x, list) else ())) for x in lists)
    return about if isinstance(about, dict) else {}, trained, holdout


def load_weights(
    module: nn.Module, tensors: dict[str, Tensor], source: str, architecture: str
) -> None:
    """Fill a module by name; a classifier (`fc.`) and other parts are passed over."""
    renamed = getattr(module, "renamed", str)  # files of others have other names
    tensors = {renamed(name): tensor for name, tensor in tensors.items()}
    given = {name: t for name, t in tensors.items() if not name.startswith(("fc.", PART))}
    own = module.state_dict()
    needed = {name for name in own if not name.endswith("num_batches_tracked")}
    wrong = sorted(n for n in needed & given.keys() if own[n].shape != given[n].shape)
    faults = [f"it lacks {name}" for name in sorted(needed - given.keys())]
    faults += [f"{name} has another shape" for name in wrong]
    faults += [f"it has {name} too" for name in sorted(given.keys() - own.keys())]
    if faults:
        detail = f"{source} does not hold weights of {architecture} ({faults[0]})"
        raise InputError(detail, "use a file of that architecture", code="other_weights")
    module.load_state_dict({n: t.to(own[n].dtype) for n, t in given.items()}, strict=False)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Tensors of a `.safetensors` file or of a torch file, which is read without running code."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
        if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
            found = found["state_dict"]
        if not isinstance(found, dict) or not all(isinstance(t, Tensor) for t in found.values()):
            raise TypeError("it does not hold a dictionary of tensors")
    except Exception as error:  # torch raises many kinds on damaged files
        why = reason(error)[:200]
        if not isinstance(error, OSError):
            why = f"{type(error).__name__}: {why}"
        raise InputError(
            f"{shown(path)} cannot be read as weights ({why})",
            "use a .safetensors file, or a .pth file that holds the state_dict of a module",
            field="path",
            code="unreadable_file",
        ) from error
    return {str(name).removeprefix("module."): tensor for name, tensor in found.items()}
