"""`hf:NAME`: vision models of Hugging Face transformers with their own preprocessing.

NAME is a model of the hub or a local folder. The embedding is the model's pooled output where it
has a trained one, else its class token where it has one, else the mean over tokens or places. Of
models of images and text (CLIP and its kin) the vision tower is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from cala.encoders.base import Encoder, from_module
from cala.encoders.extras import import_extra, one_line, probe
from cala.encoders.transform import FILTERS, Transform, Triple
from cala.errors import InputError

HALF: Triple = (0.5, 0.5, 0.5)


def hf_door(name: str, device: torch.device | str = "cpu") -> Encoder:
    transformers = import_extra("transformers", "hf")
    if find_spec("torchvision") is not None:  # it hides that a broken one is the cause
        import_extra("torchvision", "hf")
    uri = f"hf:{name}"
    # The processor that works on Pillow images: the other one needs torchvision.
    old = int(transformers.__version__.split(".")[0]) < 5
    backend: dict[str, Any] = {"use_fast": False} if old else {"backend": "pil"}
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(name, **backend)
        model, info = transformers.AutoModel.from_pretrained(name, output_loading_info=True)
    except Exception as error:  # downloads and foreign configs fail in many ways
        raise InputError(
            f"{uri} cannot be loaded ({one_line(error)}): it needs a download, or a local folder "
            "with config.json, preprocessor_config.json and weights"
        ) from error
    module = Pooled(model, list(info["missing_keys"]), uri)
    transform = read_processor(processor.to_dict(), uri)
    module.dim = probe(module, transform.size, uri)
    return from_module(
        uri,
        module,
        transform,
        architecture=f"hf:{type(module.model).__name__}",
        device=device,
        pretrained=True,
        about={"transformers": transformers.__version__, "pooling": module.pooling},
    )


class Pooled(nn.Module):
    """(n, 3, size, size) -> (n, d) from a model of transformers."""

    dim = 0

    def __init__(self, model: Any, missing: list[str], uri: str) -> None:
        super().__init__()
        # A checkpoint of a classifier often lacks the pooler, which is then random.
        lacks_pooler = any("pooler." in key for key in missing)
        model = getattr(model, "vision_model", model)
        if lacks_pooler and hasattr(model, "pooler"):
            model.pooler = None
        lost = [key for key in missing if "pooler." not in key and not key.startswith("text_")]
        if lost:
            raise InputError(f"{uri} comes without weights for {lost[0]}")
        self.model = model.float()
        token = any(key.endswith(("cls_token", "class_embedding")) for key in model.state_dict())
        self.rest = "class token" if token else "mean"
        self.pooling = self.rest if lacks_pooler else "pooler"

    def forward(self, images: Tensor) -> Tensor:
        found = self.model(pixel_values=images)
        pooled = None if self.pooling != "pooler" else getattr(found, "pooler_output", None)
        if pooled is not None:
            return pooled.flatten(1)  # ResNets keep two axes of length 1
        self.pooling = self.rest
        last: Tensor = found.last_hidden_state
        if last.ndim == 4:
            return last.mean((2, 3))
        return last[:, 0] if self.rest == "class token" else last.mean(1)


def read_processor(fields: Mapping[str, Any], uri: str) -> Transform:
    """The test transform that the fields of an image processor describe."""
    size = _sides(fields.get("size"), uri)
    crop = _sides(fields.get("crop_size"), uri) if fields.get("do_center_crop") else None
    if size is None:
        size = crop or (224, True)
    resize, squeeze = size
    side = crop[0] if crop else resize
    if fields.get("crop_pct") and not crop and side < 384:  # ConvNeXt's own rule
        resize, squeeze = math.floor(side / fields["crop_pct"]), False
    if side > resize:
        raise InputError(f"{uri} crops {side} pixels from {resize}, which is not supported")
    plain = fields.get("do_normalize") is False
    if fields.get("do_rescale") is False:
        raise InputError(f"{uri} takes values from 0 to 255, which is not supported")
    return Transform(
        size=side,
        resize=resize,
        mean=(0.0, 0.0, 0.0) if plain else _triple(fields.get("image_mean") or HALF),
        std=(1.0, 1.0, 1.0) if plain else _triple(fields.get("image_std") or HALF),
        fit="squeeze" if squeeze else "crop",
        filter=_filter(fields.get("resample")),
    )


def _triple(values: Any) -> Triple:
    red, green, blue = (float(value) for value in values)
    return red, green, blue


def _sides(size: Any, uri: str) -> tuple[int, bool] | None:
    """The side in pixels, and whether both sides are meant rather than the shorter one."""
    if not size:
        return None
    if isinstance(size, int):
        return size, True
    given = {key: size.get(key) for key in ("height", "width", "shortest_edge")}
    if given["shortest_edge"]:
        return int(given["shortest_edge"]), False
    if not given["height"] or given["height"] != given["width"]:
        raise InputError(f"{uri} takes images of {dict(size)}, not square ones")
    return int(given["height"]), True


def _filter(resample: Any) -> str:
    wanted = Image.Resampling.BILINEAR if resample is None else Image.Resampling(int(resample))
    return next(name for name, value in FILTERS.items() if value == wanted)
