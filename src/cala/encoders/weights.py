"""An encoder in one file: safetensors with everything that is known about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from cala.encoders.base import Encoder, from_module
from cala.encoders.registry import ARCHITECTURES
from cala.encoders.transform import Transform
from cala.encoders.views import MOST, VIEWS, with_views
from cala.errors import InputError
from cala.files import atomic, reason, shown

FORMAT = 1
PART = "part."  # names of tensors that are no part of the encoder itself


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
    tensors: dict[str, Tensor] = {}
    everything = {**module.state_dict(), **{PART + k: v for k, v in (parts or {}).items()}}
    for name, tensor in everything.items():
        if name.endswith("num_batches_tracked"):
            continue
        wide = tensor.detach().cpu().contiguous()
        tensors[name] = wide.half() if half and wide.is_floating_point() else wide.clone()
    _check_finite(path, tensors)
    meta = {
        "format": FORMAT,
        "architecture": architecture,
        "transform": transform.as_dict(),
        "scale": scale,
        "holdout": sorted(holdout),
        "trained": sorted(trained),
        "about": about or {},
    }
    with atomic(path) as temporary:
        save_file(tensors, temporary, metadata={"cala": json.dumps(meta)})


def halve_encoder(source: Path, target: Path) -> None:
    """The same encoder with weights in half precision, in another file."""
    meta, tensors = _read(source)
    halves = {n: t.half() if t.is_floating_point() else t for n, t in tensors.items()}
    _check_finite(target, halves)
    with atomic(target) as temporary:
        save_file(halves, temporary, metadata={"cala": json.dumps(meta)})


def _check_finite(path: Path, tensors: dict[str, Tensor]) -> None:
    bad = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if bad:
        raise InputError(
            f"{shown(path)} is not written: {bad[0]} holds NaN or infinity, so the encoder is "
            "broken. Train again with a lower --lr"
        )


def load_encoder_file(
    path: Path, name: str | None = None, device: torch.device | str = "cpu"
) -> Encoder:
    """The encoder in a file that `save_encoder` wrote."""
    meta, tensors = _read(path)
    try:
        architecture = meta["architecture"]
        module = ARCHITECTURES[architecture]()
        transform = Transform.from_dict(meta["transform"])
        scale = None if meta["scale"] is None else float(meta["scale"])
        holdout = frozenset(str(digest) for digest in meta["holdout"])
        trained = frozenset(str(digest) for digest in meta.get("trained", ()))
        about = dict(meta["about"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{shown(path)} does not describe its encoder as `cala train` does ({reason(error)})"
        ) from error
    load_weights(module, tensors, shown(path), architecture)
    parts = {
        name.removeprefix(PART): tensor.float().numpy()
        for name, tensor in tensors.items()
        if name.startswith(PART)
    }
    views = _views(parts, path)
    return from_module(
        name or str(path),
        with_views(module, views),
        transform,
        architecture=architecture if views == 1 else f"{architecture} {views} views",
        device=device,
        scale=scale,
        holdout=holdout,
        trained=trained,
        parts=parts,
        about=about,
    )


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            meta = json.loads((file.metadata() or {}).get("cala", "{}"))
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(
            f"{shown(path)} cannot be read as an encoder ({reason(error)}): it is cut short or "
            "something else; `cala train` writes such files"
        ) from error
    found = meta.get("format") if isinstance(meta, dict) else None
    if found != FORMAT:
        raise InputError(
            f"{shown(path)} is not an encoder of `cala train` (format {found}, this reads {FORMAT})"
        )
    return meta, tensors


def _views(parts: dict[str, NDArray[np.float32]], path: Path) -> int:
    """How many views of an image the encoder was trained to look at."""
    given = parts.get(VIEWS, np.ones(1)).flatten().tolist()
    if len(given) != 1 or given[0] not in range(1, MOST + 1):
        raise InputError(f"{shown(path)} states {given} views of an image: 1 to {MOST} are known")
    return int(given[0])


def stated_training(path: Path) -> tuple[dict[str, Any], frozenset[str], frozenset[str]]:
    """`about`, `trained` and `holdout` of an encoder of `cala train`; else empty."""
    try:
        meta, _ = _read(path)
    except InputError:
        return {}, frozenset(), frozenset()
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
    lost = sorted(needed - given.keys())
    extra = sorted(given.keys() - own.keys())
    wrong = sorted(n for n in needed & given.keys() if own[n].shape != given[n].shape)
    if lost or extra or wrong:
        first = f"it lacks {lost[0]}" if lost else ""
        first = first or (f"{wrong[0]} has another shape" if wrong else f"it has {extra[0]} too")
        raise InputError(f"{source} does not hold weights of {architecture}: {first}")
    module.load_state_dict({n: t.to(own[n].dtype) for n, t in given.items()}, strict=False)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Tensors of a `.safetensors` file or of a torch file, which is read without running code."""
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds on damaged files
        why = reason(error)[:200]
        if not isinstance(error, OSError):
            why = f"{type(error).__name__}: {why}"
        raise InputError(
            f"{shown(path)} cannot be read as weights ({why}): give a .safetensors file, or a .pth "
            "file that holds a dictionary of tensors"
        ) from error
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
        found = found["state_dict"]
    if not isinstance(found, dict) or not all(isinstance(t, Tensor) for t in found.values()):
        raise InputError(f"{shown(path)} does not hold a dictionary of tensors")
    return {str(name).removeprefix("module."): tensor for name, tensor in found.items()}
