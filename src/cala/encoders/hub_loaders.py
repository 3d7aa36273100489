"""`hf:NAME` and `timm:NAME`: models of other libraries, prepared as these prepare images.

`hf:` takes the name of a model on the Hugging Face hub or a local folder. The embedding is the
model's pooled output if it has a trained one, else its class token, else the mean over tokens or
places; of models of images and text (CLIP and the like) the vision tower. `timm:` keeps timm's own
prefixes: `timm:hf-hub:USER/MODEL`, `timm:local-dir:FOLDER`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from cala.encoders.base import Encoder, wrap_errors
from cala.encoders.torch_module import from_module, pooled, probe
from cala.encoders.transform import FILTERS, Transform
from cala.errors import InputError, UnknownNameError
from cala.extras import import_extra

SAFE = {"trust_remote_code": False}  # a hub's own Python files are refused, not asked about


def load_hf(name: str, device: torch.device | str = "cpu") -> Encoder:
    """Load `hf:NAME`."""
    transformers = import_extra("transformers", "hf")
    if find_spec("torchvision") is not None:
        import_extra("torchvision", "hf")  # transformers would hide that a broken one is the cause
    uri = f"hf:{name}"
    # The processor that works on Pillow images: the other one needs torchvision.
    old = int(transformers.__version__.split(".")[0]) < 5
    backend: dict[str, Any] = {"use_fast": False} if old else {"backend": "pil"}
    files = "config.json, preprocessor_config.json and weights"
    fix = f"it needs a download, or a local folder with {files}"
    with wrap_errors(f"{uri} cannot be loaded", fix, "not_loaded"):
        processor = transformers.AutoImageProcessor.from_pretrained(name, **backend, **SAFE)
        model, info = transformers.AutoModel.from_pretrained(name, output_loading_info=True, **SAFE)
    module = Pooled(model, list(info["missing_keys"]), uri)
    transform = read_hf_processor(processor.to_dict(), uri)
    module.dim = probe(module, transform.size, uri)
    architecture = f"hf:{type(module.model).__name__}"
    about = {"transformers": transformers.__version__, "pooling": module.pooling}
    return from_module(uri, module, transform, architecture, device, pretrained=True, about=about)


class Pooled(nn.Module):
    """(n, 3, size, size) -> (n, d) from a model of transformers."""

    dim = 0

    def __init__(self, model: Any, missing: list[str], uri: str) -> None:
        super().__init__()
        # Checkpoints of classifiers often lack the pooler, which is then random.
        lacks_pooler = any("pooler." in key for key in missing)
        model = getattr(model, "vision_model", model)
        if lacks_pooler and hasattr(model, "pooler"):
            model.pooler = None
        lost = [key for key in missing if "pooler." not in key and not key.startswith("text_")]
        if lost:
            raise InputError(f"{uri} has no weights for {lost[0]}")
        self.model = model.float()
        token = any(key.endswith(("cls_token", "class_embedding")) for key in model.state_dict())
        self.rest = "class token" if token else "mean"
        self.pooling = self.rest if lacks_pooler else "pooler"

    def forward(self, images: Tensor) -> Tensor:
        found = self.model(pixel_values=images)
        output = None if self.pooling != "pooler" else getattr(found, "pooler_output", None)
        if output is not None:
            return output.flatten(1)  # ResNets keep two axes of length 1
        self.pooling = self.rest
        last: Tensor = found.last_hidden_state
        token = last.ndim == 3 and self.rest == "class token"
        return last[:, 0] if token else pooled(last)


def read_hf_processor(given: Mapping[str, Any], uri: str) -> Transform:
    """Return the test transform that the fields of an image processor describe."""
    crop = _sides(given.get("crop_size"), uri) if given.get("do_center_crop") else None
    resize, squeeze = _sides(given.get("size"), uri) or crop or (224, True)
    side = crop[0] if crop else resize
    if given.get("crop_pct") and not crop and side < 384:  # ConvNeXt's own rule
        resize, squeeze = math.floor(side / given["crop_pct"]), False
    if side > resize:
        raise InputError(f"{uri} crops {side} pixels from {resize}, which is not supported")
    if given.get("do_rescale") is False:
        raise InputError(f"{uri} takes values from 0 to 255, which is not supported")
    mean, std = (given.get(key) or (0.5, 0.5, 0.5) for key in ("image_mean", "image_std"))
    if given.get("do_normalize") is False:
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    resample = given.get("resample")
    wanted = Image.Resampling.BILINEAR if resample is None else Image.Resampling(int(resample))
    fit = "squeeze" if squeeze else "crop"
    filter_ = next(name for name, value in FILTERS.items() if value == wanted)
    fields = {"mean": mean, "std": std, "fit": fit, "filter": filter_}
    return Transform.from_dict({"size": side, "resize": resize, **fields})


def _sides(size: Any, uri: str) -> tuple[int, bool] | None:
    """Return the side in pixels, and whether both sides are meant rather than the shorter one."""
    if not size:
        return None
    if isinstance(size, int):
        return size, True
    if size.get("shortest_edge"):
        return int(size["shortest_edge"]), False
    if not size.get("height") or size["height"] != size.get("width"):
        raise InputError(f"{uri} takes images of {dict(size)}, not square ones")
    return int(size["height"]), True


def load_timm(name: str, device: torch.device | str = "cpu") -> Encoder:
    """Load `timm:NAME`."""
    timm = import_extra("timm", "timm")
    uri = f"timm:{name}"
    if ":" not in name and not timm.is_model(name.split(".")[0]):
        near = difflib.get_close_matches(name, timm.list_models(), n=1)
        fix = f"did you mean 'timm:{near[0]}'?" if near else "see timm.list_models()"
        raise UnknownNameError(f"timm has no model {name!r}", fix, field="encoder")
    fix = "it needs a download, or a local folder as timm:local-dir:FOLDER"
    with wrap_errors(f"{uri} cannot be loaded", fix, "not_loaded"):
        module = timm.create_model(name, pretrained=True, num_classes=0)
    transform = read_timm_config(timm.data.resolve_model_data_config(module), uri)
    module.dim = probe(module, transform.size, uri)
    architecture = f"timm:{module.pretrained_cfg.get('architecture') or name.split('.')[0]}"
    about = {"timm": timm.__version__, "tag": module.pretrained_cfg.get("tag") or ""}
    return from_module(uri, module, transform, architecture, device, pretrained=True, about=about)


def read_timm_config(config: dict[str, Any], uri: str) -> Transform:
    """Return the test transform that a data config of timm describes."""
    channels, height, width = config["input_size"]
    if channels != 3 or height != width:
        detail = f"{uri} takes {channels}×{height}×{width} images, not square RGB ones"
        raise InputError(detail, code="wrong_input")
    mode, filter_ = config.get("crop_mode", "center"), config.get("interpolation", "bicubic")
    if mode == "border":
        raise InputError(f"{uri} needs images with a border, which is not supported")
    return Transform.from_dict(
        {
            "size": height,
            "resize": max(height, math.floor(height / config.get("crop_pct", 0.875))),
            "mean": config["mean"],
            "std": config["std"],
            "fit": "squeeze" if mode == "squash" else "crop",
            "filter": filter_ if filter_ in FILTERS else "bilinear",  # `random` is for training
        }
    )
