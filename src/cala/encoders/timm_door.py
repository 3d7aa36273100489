"""`timm:NAME`: the models of timm with their own preprocessing.

timm's own prefixes stay in force: `timm:hf-hub:USER/MODEL`, `timm:local-dir:FOLDER`.
"""

from __future__ import annotations

import difflib
import math
from typing import Any

import torch

from cala.encoders.base import Encoder, from_module
from cala.encoders.extras import import_extra, one_line, probe
from cala.encoders.transform import FILTERS, Transform
from cala.errors import InputError, UnknownNameError


def timm_door(name: str, device: torch.device | str = "cpu") -> Encoder:
    timm = import_extra("timm", "timm")
    uri = f"timm:{name}"
    if ":" not in name and not timm.is_model(name.split(".")[0]):
        near = difflib.get_close_matches(name, timm.list_models(), n=1)
        hint = f": did you mean 'timm:{near[0]}'?" if near else ": see timm.list_models()"
        raise UnknownNameError(f"timm has no model {name!r}{hint}")
    try:
        module = timm.create_model(name, pretrained=True, num_classes=0)
    except Exception as error:  # downloads fail in many ways
        raise InputError(
            f"{uri} cannot be loaded ({one_line(error)}): it needs a download, or a local folder "
            "as timm:local-dir:FOLDER"
        ) from error
    config = timm.data.resolve_model_data_config(module)
    transform = read_config(config, uri)
    module.dim = probe(module, transform.size, uri)
    architecture = module.pretrained_cfg.get("architecture") or name.split(".")[0]
    return from_module(
        uri,
        module,
        transform,
        architecture=f"timm:{architecture}",
        device=device,
        pretrained=True,
        about={"timm": timm.__version__, "tag": module.pretrained_cfg.get("tag") or ""},
    )


def read_config(config: dict[str, Any], uri: str) -> Transform:
    """The test transform that a data config of timm describes."""
    channels, height, width = config["input_size"]
    if channels != 3 or height != width:
        raise InputError(f"{uri} takes {channels}×{height}×{width} images, not square RGB ones")
    mode, filter_ = config.get("crop_mode", "center"), config.get("interpolation", "bicubic")
    if mode == "border":
        raise InputError(f"{uri} wants images with a border, which is not supported")
    return Transform(
        size=height,
        resize=max(height, math.floor(height / config.get("crop_pct", 0.875))),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        fit="squeeze" if mode == "squash" else "crop",
        filter=filter_ if filter_ in FILTERS else "bilinear",  # timm's `random` is for training
    )
