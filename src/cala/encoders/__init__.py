"""Image -> embedding: architectures, pretrained encoders, doors to other libraries, the cache."""

from cala.encoders import resnet, resnet12  # registers architectures
from cala.encoders.architectures import ARCHITECTURES
from cala.encoders.base import Encoder
from cala.encoders.transform import Transform

__all__ = ["ARCHITECTURES", "Encoder", "Transform", "resnet", "resnet12"]
