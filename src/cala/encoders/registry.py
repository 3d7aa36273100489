"""Encoders by name: ready-made ones, doors to other libraries, files of `cala train`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from cala.encoders.architectures import ARCHITECTURES
from cala.errors import InputError, UnknownNameError
from cala.files import shown
from cala.registry import Registry
from cala.shipped import shipped

if TYPE_CHECKING:
    import torch

    from cala.encoders.base import Encoder

Device: TypeAlias = "torch.device | str"
FILE = "encoder.safetensors"

#: Encoders whose file the package brings along.
SHIPPED = {"resnet20-cifar100": "cifar100/encoder.safetensors"}

ENCODERS: Registry[Callable[[Device], Encoder]] = Registry("encoder")
"""Pretrained encoders: device -> encoder."""

DOORS: Registry[Callable[[str, Device], Encoder]] = Registry("door")
"""Prefixes of URIs: what stands behind `prefix:` and a device -> encoder."""

for _registry, _name, _where, _summary in (
    (
        ENCODERS,
        "efficientnet-lite0",
        "efficientnet_lite0:efficientnet_lite0",
        "EfficientNet-Lite0, ImageNet-1k, installed with cala, 224 px, 1280-d",
    ),
    (
        ENCODERS,
        "resnet20-cifar100",
        "shipped:resnet20_cifar100",
        "ResNet-20 trained on CIFAR-100's 60 base classes, 32 px, 64-d, shipped",
    ),
    (
        DOORS,
        "hf",
        "hf_door:hf_door",
        "hf:NAME, a vision model of Hugging Face or a local folder (extra: hf)",
    ),
    (DOORS, "onnx", "onnx_door:onnx_door", "onnx:FILE, a network in ONNX format (extra: onnx)"),
    (
        DOORS,
        "timm",
        "timm_door:timm_door",
        "timm:NAME, a pretrained model of timm (extra: timm)",
    ),
    (
        DOORS,
        "torch",
        "torch_door:torch_door",
        "torch:module.path:factory, any module of your own",
    ),
    (
        DOORS,
        "views",
        "views_door:views_door",
        "views:V:NAME, the first V views of an encoder that has several",
    ),
):
    _registry.add(_name, f"cala.encoders.{_where}", _summary)


def load_encoder(
    uri: str | os.PathLike[str], device: Device = "cpu", views: int | None = None
) -> Encoder:
    """The encoder that a name, a door's URI or a path stands for.

    views : of an encoder that looks at several views of an image, at most the first so many

    >>> load_encoder("efficientnet-lite0").dim
    1280
    >>> load_encoder("resnet18")
    Traceback (most recent call last):
    ...
    cala.errors.InputError: resnet18 is an architecture without weights: train it with ...
    """
    from cala.encoders.device import choose_device

    found = _found(os.fspath(uri), choose_device(device))
    if views is None:
        return found
    from cala.encoders.views import at_most

    return at_most(found, views)


def _found(uri: str, device: Device) -> Encoder:
    from cala.encoders.weights import load_encoder_file

    if uri in ENCODERS:
        return ENCODERS[uri](device)
    prefix, colon, rest = uri.partition(":")
    if colon and prefix in DOORS:
        if not rest:
            raise InputError(f"{uri} names no model: {DOORS.summary(prefix)}")
        return DOORS[prefix](rest, device)
    for path in (uri, os.path.join(uri, FILE)):
        if os.path.isfile(path):
            return load_encoder_file(Path(path), device=device)
    raise _unknown(uri)


def located(uri: str | os.PathLike[str]) -> str:
    """A URI that means the same in a process that runs elsewhere: paths are absolute."""
    text = os.fspath(uri)
    prefix, colon, rest = text.partition(":")
    if text in ENCODERS:
        return text
    if os.path.exists(text):
        return os.path.abspath(text)
    if colon and prefix in DOORS and os.path.exists(rest):
        return f"{prefix}:{os.path.abspath(rest)}"
    return text


def weights_file(name: str) -> Path:
    """The file that weights to start from are in: an encoder that is installed, or a path."""
    if name in SHIPPED:
        return shipped(SHIPPED[name])
    if name == "efficientnet-lite0":
        from cala.encoders import efficientnet_lite0

        return efficientnet_lite0.weights_file()
    folder = Path(name, FILE)
    return folder if folder.is_file() else Path(name)


def _unknown(uri: str) -> InputError:
    ready = ", ".join(ENCODERS)
    if uri in ARCHITECTURES:
        return InputError(
            f"{uri} is an architecture without weights: train it with `cala train --encoder {uri}`,"
            f" or take an encoder that is trained ({ready})"
        )
    if os.path.isdir(uri):
        return InputError(f"the folder {shown(uri)} holds no {FILE}: `cala train` writes it")
    prefix, colon, rest = uri.partition(":")
    if uri.endswith(".safetensors") or (not colon and os.path.basename(uri) != uri):
        return InputError(f"there is no encoder file {shown(uri)}")
    near = difflib.get_close_matches(prefix, DOORS if colon else [*ENCODERS, *ARCHITECTURES], n=1)
    meant = "".join([*near, colon, rest])
    hint = f"did you mean '{shown(meant)}'? " if near else ""
    doors = ", ".join(f"{door}:…" for door in DOORS)
    return UnknownNameError(
        f"unknown encoder '{shown(uri)}': {hint}Known: {ready}; doors: {doors}; "
        "or the path of a file that `cala train` wrote"
    )
