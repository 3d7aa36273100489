"""From an image to what an encoder takes: resize, crop, normalise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from cala.data.decoding import Pixels
from cala.errors import InputError
from cala.registry import check_choice

Triple = tuple[float, float, float]

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
FITS = ("crop", "squeeze")
IMAGENET_MEAN: Triple = (0.485, 0.456, 0.406)
IMAGENET_STD: Triple = (0.229, 0.224, 0.225)
CIFAR_MEAN: Triple = (0.507, 0.487, 0.441)
CIFAR_STD: Triple = (0.267, 0.256, 0.276)


@dataclass(frozen=True)
class Transform:
    """How an encoder wants to see an image at test time.

    size : side of the square input
    resize : what the image is resized to first; the middle `size` × `size` of it is kept
    fit : `crop` resizes the shorter side and keeps the aspect, `squeeze` resizes both sides
    mean, std : per channel, of values from 0 to 1
    """

    size: int
    resize: int
    mean: Triple = IMAGENET_MEAN
    std: Triple = IMAGENET_STD
    fit: str = "crop"
    filter: str = "bilinear"

    def __post_init__(self) -> None:
        check_choice("fit", self.fit, FITS)
        check_choice("filter", self.filter, FILTERS)
        if not 1 <= self.size <= self.resize:
            raise InputError(f"a crop of {self.size} from {self.resize} pixels is not possible")
        if min(self.std) <= 0:
            raise InputError(f"std is {self.std}: give three numbers above 0")

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Transform:
        """The inverse of `as_dict`, after a way through JSON."""
        triples = {k: tuple(float(v) for v in fields[k]) for k in ("mean", "std")}
        return cls(**{**fields, **triples})

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def prepare(self, image: Pixels) -> Pixels:
        """(h, w, 3) -> (size, size, 3), still uint8."""
        height, width = image.shape[:2]
        if self.fit == "squeeze":
            target = (self.resize, self.resize)
        else:
            factor = self.resize / min(height, width)
            target = (
                max(self.resize, round(height * factor)),
                max(self.resize, round(width * factor)),
            )
        if target != (height, width):
            picture = Image.fromarray(image).resize(target[::-1], FILTERS[self.filter])
            image = np.asarray(picture)
        top, left = ((side - self.size) // 2 for side in image.shape[:2])
        return image[top : top + self.size, left : left + self.size]

    def stack(self, images: Sequence[Pixels] | Pixels) -> Tensor:
        """Images of any size -> one (n, size, size, 3) uint8 tensor."""
        side = (self.size, self.size)
        if isinstance(images, np.ndarray) and images.shape[1:3] == side and self.resize == side[0]:
            return torch.from_numpy(np.ascontiguousarray(images))
        return torch.from_numpy(np.stack([self.prepare(image) for image in images]))

    def normalise(self, images: Tensor) -> Tensor:
        """(n, h, w, 3) uint8 -> (n, 3, h, w) floats, channels last in memory."""
        mean = torch.tensor(self.mean, device=images.device) * 255
        std = torch.tensor(self.std, device=images.device) * 255
        return ((images - mean) / std).permute(0, 3, 1, 2)
