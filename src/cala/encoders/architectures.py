"""The registry of architectures: untrained modules that `cala train` can train."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cala.registry import Registry

if TYPE_CHECKING:
    from torch import nn

ARCHITECTURES: Registry[Callable[[], nn.Module]] = Registry("architecture")
for _name, _where, _summary in (
    ("resnet20", "resnet:resnet20", "ResNet-20 for 32×32 images, 64-d"),
    ("resnet18", "resnet:resnet18", "ResNet-18 with the 7×7 stem and max-pooling, 512-d"),
    (
        "resnet18-small",
        "resnet:resnet18_small",
        "ResNet-18 with a 3×3 stem, small images, 512-d",
    ),
    ("resnet12", "resnet12:ResNet12", "ResNet-12 (64-160-320-640), 640-d"),
    (
        "efficientnet-lite0",
        "efficientnet_lite0:EfficientNetLite0",
        "EfficientNet-Lite0, 1280-d; --init efficientnet-lite0 starts from its weights",
    ),
):
    ARCHITECTURES.add(_name, f"cala.encoders.{_where}", _summary)
