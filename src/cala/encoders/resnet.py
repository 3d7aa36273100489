"""The field's ResNets, without a classifier: image -> mean-pooled embedding.

Parameter names are those of torchvision, so that its weight files load by name.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

Norm = Callable[[int], nn.Module]
RESNET12_WIDTHS = (64, 160, 320, 640)


def conv3x3(channels: int, out: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)


def conv1x1(channels: int, out: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, out, 1, stride, bias=False)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut; a 1×1 convolution where the shape changes."""

    def __init__(self, channels: int, out: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = conv3x3(channels, out, stride)
        self.bn1 = norm(out)
        self.conv2 = conv3x3(out, out)
        self.bn2 = norm(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(conv1x1(channels, out, stride), norm(out))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(x)) + shortcut)


class ResNet(nn.Module):
    """A stem, stages of basic blocks, each after the first at half the resolution, mean pooling.

    widths : channels of each stage; blocks : blocks in each stage
    stem : `large` is 7×7 with stride 2 and max-pooling, `small` is 3×3 with neither
    """

    def __init__(
        self, widths: tuple[int, ...], blocks: int, stem: str, norm: Norm = nn.BatchNorm2d
    ) -> None:
        super().__init__()
        self.dim = widths[-1]
        first = widths[0]
        if stem == "large":
            self.conv1 = nn.Conv2d(3, first, 7, 2, padding=3, bias=False)
            self.maxpool: nn.Module = nn.MaxPool2d(3, 2, padding=1)
        else:
            self.conv1 = conv3x3(3, first)
            self.maxpool = nn.Identity()
        self.bn1 = norm(first)
        self.relu = nn.ReLU(inplace=True)
        self.stages = len(widths)
        for index, width in enumerate(widths):
            stride = 1 if index == 0 else 2
            stage = [BasicBlock(first, width, stride, norm)]
            stage += [BasicBlock(width, width, 1, norm) for _ in range(blocks - 1)]
            setattr(self, f"layer{index + 1}", nn.Sequential(*stage))
            first = width
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, d)"""
        return self.upper(self.lower(images))

    def lower(self, images: Tensor) -> Tensor:
        """To the end of the second stage: (n, 3, h, w) -> (n, c, h', w')"""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for index in range(2):
            x = getattr(self, f"layer{index + 1}")(x)
        return x

    def upper(self, hidden: Tensor) -> Tensor:
        """What `lower` gave -> (n, d)"""
        for index in range(2, self.stages):
            hidden = getattr(self, f"layer{index + 1}")(hidden)
        return hidden.mean((2, 3))


class PoolingBlock(nn.Module):
    """Three 3×3 convolutions, a 1×1 shortcut, and max-pooling by two."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3x3(channels, out), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = conv3x3(out, out), nn.BatchNorm2d(out)
        self.conv3, self.bn3 = conv3x3(out, out), nn.BatchNorm2d(out)
        self.downsample = nn.Sequential(conv1x1(channels, out), nn.BatchNorm2d(out))
        self.relu = nn.LeakyReLU(0.1, inplace=True)
        self.maxpool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.maxpool(self.relu(self.bn3(self.conv3(x)) + shortcut))


class ResNet12(nn.Module):
    """(n, 3, h, w) -> (n, 640)"""

    dim = RESNET12_WIDTHS[-1]

    def __init__(self) -> None:
        super().__init__()
        channels = (3, *RESNET12_WIDTHS[:-1])
        blocks = [PoolingBlock(i, o) for i, o in zip(channels, RESNET12_WIDTHS, strict=True)]
        self.layer1, self.layer2, self.layer3, self.layer4 = blocks
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="leaky_relu")

    def forward(self, images: Tensor) -> Tensor:
        return self.upper(self.lower(images))

    def lower(self, images: Tensor) -> Tensor:
        """To the end of the second block: (n, 3, h, w) -> (n, c, h', w')"""
        return self.layer2(self.layer1(images))

    def upper(self, hidden: Tensor) -> Tensor:
        """What `lower` gave -> (n, 640)"""
        return self.layer4(self.layer3(hidden)).mean((2, 3))


def resnet20() -> ResNet:
    return ResNet((16, 32, 64), blocks=3, stem="small")


def resnet18() -> ResNet:
    return ResNet((64, 128, 256, 512), blocks=2, stem="large")


def resnet18_narrow() -> ResNet:
    return ResNet((32, 64, 128, 256), blocks=2, stem="large")


def resnet18_small() -> ResNet:
    return ResNet((64, 128, 256, 512), blocks=2, stem="small")


def resnet18_small_narrow() -> ResNet:
    return ResNet((32, 64, 128, 256), blocks=2, stem="small")
