"""Encoders by name: pretrained ones, loaders of other libraries, files of `cala train`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from cala.errors import InputError, UnknownNameError
from cala.files import shown
from cala.registry import Registry
from cala.shipped import shipped

if TYPE_CHECKING:
    import torch
    from torch import nn

    from cala.encoders.base import Encoder

Device: TypeAlias = "torch.device | str"
FILE = "encoder.safetensors"

#: Encoders whose weights are in the package.
SHIPPED = {"resnet20-cifar100": "cifar100/encoder.safetensors"}

ARCHITECTURES: Registry[Callable[[], nn.Module]] = Registry("architecture")
"""Untrained modules that `cala train` can train."""

ENCODERS: Registry[Callable[[Device], Encoder]] = Registry("encoder")
"""Pretrained encoders: device -> encoder."""

LOADERS: Registry[Callable[[str, Device], Encoder]] = Registry("loader")
"""Prefixes of URIs: what follows `prefix:`, and a device -> encoder."""

_RESNET, _LITE0 = "cala.encoders.resnet", "cala.encoders.efficientnet_lite0"
for _name, _where, _summary in (
    ("resnet20", f"{_RESNET}:resnet20", "ResNet-20 for 32×32 images, 64-d"),
    ("resnet18", f"{_RESNET}:resnet18", "ResNet-18 with the 7×7 stem and max-pooling, 512-d"),
    ("resnet18-narrow", f"{_RESNET}:resnet18_narrow", "ResNet-18 of half the width, 256-d"),
    ("resnet18-small", f"{_RESNET}:resnet18_small", "ResNet-18 with a 3×3 stem, 512-d"),
    ("resnet12", f"{_RESNET}:ResNet12", "ResNet-12 (64-160-320-640), 640-d"),
    ("efficientnet-lite0", f"{_LITE0}:EfficientNetLite0", "EfficientNet-Lite0, 1280-d; see --init"),
):
    ARCHITECTURES.add(_name, _where, _summary)
ENCODERS.add(
    "efficientnet-lite0",
    f"{_LITE0}:efficientnet_lite0",
    "EfficientNet-Lite0, ImageNet-1k, installed with cala, 224 px, 1280-d",
)
for _name, _where, _summary in (
    ("hf", "hub_loaders:load_hf", "hf:NAME, a Hugging Face vision model, or a folder (extra: hf)"),
    ("onnx", "onnx_loader:load_onnx", "onnx:FILE, a network in ONNX format (extra: onnx)"),
    ("onnx-external", "onnx_loader:load_external", "onnx-external:FILE, with weights beside it"),
    ("size", "resolution:load_size", "size:S:NAME, an encoder on images of S × S pixels"),
    ("timm", "hub_loaders:load_timm", "timm:NAME, a pretrained model of timm (extra: timm)"),
    ("torch", "torch_loader:load_torch", "torch:module.path:factory, your module; runs its code"),
    ("views", "views:load_views", "views:V:NAME, the first V views of an encoder with several"),
):
    LOADERS.add(_name, f"cala.encoders.{_where}", _summary)


@ENCODERS.register(
    "resnet20-cifar100", "ResNet-20 trained on CIFAR-100's 60 base classes, 32 px, 64-d, shipped"
)
def _resnet20_cifar100(device: Device = "cpu") -> Encoder:
    from cala.encoders.weights import load_encoder_file

    name = "resnet20-cifar100"
    return load_encoder_file(weights_file(name), name, device)


def load_encoder(
    uri: str | os.PathLike[str], device: Device = "cpu", views: int | None = None
) -> Encoder:
    """Load an encoder by name, URI or path.

    Parameters
    ----------
    uri : str or path
        The name of a pretrained encoder (`ENCODERS`), a URI with the prefix of a loader
        (`LOADERS`), or a file or folder that `cala train` wrote. A `torch:` URI imports and runs
        the Python module that it names: load only code that you trust.
    device : torch.device or str, default="cpu"
        Where the encoder runs.
    views : int, optional
        For an encoder that embeds several views of an image, the most views to use. Fewer are
        faster and less accurate.

    Returns
    -------
    Encoder
        The encoder, in evaluation mode, with its weights frozen.

    Raises
    ------
    InputError
        If the encoder cannot be loaded. The error is an `UnknownNameError` if `uri` is neither a
        known name nor a path.

    Examples
    --------
    >>> load_encoder("efficientnet-lite0").dim
    1280
    >>> load_encoder("resnet18")
    Traceback (most recent call last):
    ...
    cala.errors.InputError: resnet18 is an architecture without weights: train it with ...
    """
    from cala.encoders.device import choose_device

    found = _load(os.fspath(uri), choose_device(device))
    if views is None:
        return found
    from cala.encoders.views import at_most

    return at_most(found, views)


def _load(uri: str, device: Device) -> Encoder:
    from cala.encoders.weights import load_encoder_file

    if uri in ENCODERS:
        return ENCODERS[uri](device)
    prefix, colon, rest = uri.partition(":")
    if colon and prefix in LOADERS:
        if not rest:
            raise InputError(f"{uri} names no model", LOADERS.summary(prefix), field="encoder")
        return LOADERS[prefix](rest, device)
    for path in (uri, os.path.join(uri, FILE)):
        if os.path.isfile(path):
            return load_encoder_file(Path(path), device=device)
    raise _unknown(uri)


def located(uri: str | os.PathLike[str]) -> str:
    """Return a URI that means the same in another working directory: paths become absolute."""
    text = os.fspath(uri)
    prefix, _, rest = text.partition(":")
    if text in ENCODERS:
        return text
    if os.path.exists(text):
        return os.path.abspath(text)
    if prefix in ("views", "size"):
        number, _, inner = rest.partition(":")
        return f"{prefix}:{number}:{located(inner)}"
    if prefix in LOADERS and os.path.exists(rest):
        return f"{prefix}:{os.path.abspath(rest)}"
    return text


def weights_file(name: str) -> Path:
    """Return the weights file of an installed encoder or of a path, to start training from."""
    if name in SHIPPED:
        return shipped(SHIPPED[name])
    if name == "efficientnet-lite0":
        from cala.encoders.efficientnet_lite0 import installed_weights

        return installed_weights()
    folder = Path(name, FILE)
    return folder if folder.is_file() else Path(name)


def _unknown(uri: str) -> InputError:
    ready = ", ".join(ENCODERS)
    if uri in ARCHITECTURES:
        return InputError(
            f"{uri} is an architecture without weights",
            f"train it with `cala train --encoder {uri}`, or use a trained encoder ({ready})",
            field="encoder",
            code="untrained",
        )
    prefix, colon, rest = uri.partition(":")
    path = os.path.join(uri, FILE) if os.path.isdir(uri) else uri
    if path.endswith(".safetensors") or (not colon and os.path.basename(uri) != uri):
        detail = f"there is no encoder file {shown(path)}"
        fix = "give a file or folder that `cala train` wrote"
        return InputError(detail, fix, field="encoder", code="no_file")
    near = difflib.get_close_matches(prefix, LOADERS if colon else [*ENCODERS, *ARCHITECTURES], n=1)
    meant = "".join([*near, colon, rest])
    hint = f"did you mean '{shown(meant)}'? " if near else ""
    prefixes = ", ".join(f"{name}:…" for name in LOADERS)
    return UnknownNameError(
        f"unknown encoder '{shown(uri)}'",
        f"{hint}Known: {ready}; {prefixes}; or the path of a file that `cala train` wrote",
        field="encoder",
    )
