"""Image -> embedding: architectures, pretrained encoders, doors to other libraries, the cache."""

from cala.encoders import (  # these register architectures, encoders and doors
    efficientnet_lite0,
    hf_door,
    onnx_door,
    resnet,
    resnet12,
    shipped,
    timm_door,
    torch_door,
    views_door,
)
from cala.encoders.architectures import ARCHITECTURES
from cala.encoders.base import Encoder
from cala.encoders.registry import DOORS, ENCODERS, load_encoder
from cala.encoders.transform import Transform

__all__ = [
    "ARCHITECTURES",
    "DOORS",
    "ENCODERS",
    "Encoder",
    "Transform",
    "efficientnet_lite0",
    "hf_door",
    "load_encoder",
    "onnx_door",
    "resnet",
    "resnet12",
    "shipped",
    "timm_door",
    "torch_door",
    "views_door",
]
