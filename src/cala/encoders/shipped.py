"""The encoder that the package brings along, trained on CIFAR-100's base classes."""

from __future__ import annotations

from cala.encoders.base import Encoder
from cala.encoders.registry import ENCODERS, Device, weights_file
from cala.encoders.weights import load_encoder_file

NAME = "resnet20-cifar100"


@ENCODERS.register(NAME, "ResNet-20 trained on CIFAR-100's 60 base classes, 32 px, 64-d, shipped")
def resnet20_cifar100(device: Device = "cpu") -> Encoder:
    return load_encoder_file(weights_file(NAME), NAME, device)
