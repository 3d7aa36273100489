"""The encoder that the package brings along, trained on CIFAR-100's base classes."""

from __future__ import annotations

from cala.encoders.base import Encoder
from cala.encoders.registry import Device, weights_file
from cala.encoders.weights import load_encoder_file

NAME = "resnet20-cifar100"


def resnet20_cifar100(device: Device = "cpu") -> Encoder:
    return load_encoder_file(weights_file(NAME), NAME, device)
