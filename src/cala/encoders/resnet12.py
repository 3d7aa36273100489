"""ResNet-12 of few-shot learning: four blocks of three convolutions, 640-d."""

from __future__ import annotations

from torch import Tensor, nn

from cala.encoders.resnet import conv1x1, conv3x3

WIDTHS = (64, 160, 320, 640)


class Block(nn.Module):
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

    dim = WIDTHS[-1]

    def __init__(self) -> None:
        super().__init__()
        channels = (3, *WIDTHS[:-1])
        blocks = [Block(i, o) for i, o in zip(channels, WIDTHS, strict=True)]
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
