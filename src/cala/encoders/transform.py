"""From an image to what an encoder takes: resize, crop, normalise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from cala.data.decoding import Pixels
from cala.data.image_scan import in_order
from cala.data.images import ArrayPixels, ImageSplit, Rows
from cala.errors import InputError
from cala.registry import check_choice

if TYPE_CHECKING:  # training and exports pass tensors; torch takes seconds to load
    from torch import Tensor

Triple = tuple[float, float, float]

FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}
FITS = ("crop", "squeeze")
_BATCH = 8  # photos that one thread decodes, one after the other
_LONGEST = 20  # longer side over shorter, from where on a strip is not resized as a whole
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
            raise InputError(f"size is {self.size}", f"use 1 to {self.resize}", field="size")
        if min(self.std) <= 0:
            raise InputError(f"std is {self.std}", "use three numbers above 0", field="std")

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Transform:
        """The inverse of `as_dict`, after a way through JSON; mean and std may be any sequence."""
        given = [key for key in ("mean", "std") if key in fields]
        triples: dict[str, Any] = {key: tuple(map(float, fields[key])) for key in given}
        if any(len(values) != 3 for values in triples.values()):
            raise ValueError(f"mean and std need three numbers each, not {triples}")
        return cls(**{**fields, **triples})

    @property
    def least(self) -> int:
        """The side above which a photo may be decoded smaller: embeddings hardly change."""
        return 4 * self.resize

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def prepare(self, image: Pixels) -> Pixels:
        """(h, w, 3), or (h, w) of a grey image, -> (size, size, 3), still uint8."""
        image = _three_channels(image)
        height, width = image.shape[:2]
        if self.fit == "squeeze":
            target = (self.resize, self.resize)
        else:
            factor = self.resize / min(height, width)
            tall, wide = (max(self.resize, round(side * factor)) for side in (height, width))
            target = (tall, wide)
        top, left = ((side - self.size) // 2 for side in target)
        if max(target) > _LONGEST * self.resize:
            return self._middle(image, target, top, left)
        if target != (height, width):
            picture = Image.fromarray(image).resize(target[::-1], FILTERS[self.filter])
            image = np.asarray(picture)
        return image[top : top + self.size, left : left + self.size]

    def _middle(self, image: Pixels, target: tuple[int, int], top: int, left: int) -> Pixels:
        """Resize only what the crop keeps: the whole of a long strip would fill the memory."""
        rows, columns = image.shape[0] / target[0], image.shape[1] / target[1]
        box = (
            left * columns,
            top * rows,
            min((left + self.size) * columns, image.shape[1]),
            min((top + self.size) * rows, image.shape[0]),
        )
        side = (self.size, self.size)
        return np.asarray(Image.fromarray(image).resize(side, FILTERS[self.filter], box))

    def stack(self, images: Sequence[Pixels] | Pixels) -> Pixels:
        """Images of any size -> one (n, size, size, 3) uint8 array."""
        shape = (self.size, self.size, 3)
        if len(images) == 0:
            return np.empty((0, *shape), dtype=np.uint8)
        ready = isinstance(images, np.ndarray) and images.dtype == np.uint8
        if ready and self.resize == self.size and np.shape(images)[1:] == shape:
            return np.ascontiguousarray(images)
        return np.stack([self.prepare(image) for image in images])

    def normalise(self, images: Any) -> Any:
        """(n, h, w, 3) uint8 -> (n, 3, h, w) floats.

        An array becomes a contiguous array, as engines take it; a tensor becomes a tensor with its
        channels last in memory, as torch takes it.
        """
        mean, std = (np.array(x, np.float32) * np.float32(255) for x in (self.mean, self.std))
        if isinstance(images, np.ndarray):
            found = images.transpose(0, 3, 1, 2).astype(np.float32, order="C")
            found -= mean[:, None, None]
            found /= std[:, None, None]
            return found
        import torch

        shift, by = (torch.from_numpy(x).to(images.device) for x in (mean, std))
        return ((images - shift) / by).permute(0, 3, 1, 2)


def prepare_rows(split: ImageSplit, rows: Sequence[int] | Rows, transform: Transform) -> Pixels:
    """Some images of a split, one decoded at a time: (n, size, size, 3) uint8."""
    source = split.pixels
    if isinstance(source, ArrayPixels):
        return transform.stack(source.array[source.index[rows]])
    return np.stack([transform.prepare(source.image(int(row), transform.least)) for row in rows])


def stack_rows(
    split: ImageSplit,
    rows: Rows,
    transform: Transform,
    advance: Callable[[int], None] = lambda done: None,
) -> Pixels:
    """`prepare_rows` in several threads.

    advance : called with the number of images that are done
    """
    found = np.empty((len(rows), transform.size, transform.size, 3), dtype=np.uint8)

    def fill(start: int) -> int:
        now = rows[start : start + _BATCH]
        found[start : start + _BATCH] = prepare_rows(split, now, transform)
        return start + len(now)

    for done in in_order(fill, range(0, len(rows), _BATCH)):
        advance(done)
    return found


def resized_crop(
    images: Tensor,
    u: Tensor,
    size: int,
    area: tuple[float, float],
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Tensor:
    """A random part of each image, resized to `size` × `size` (bilinear): (n, c, size, size).

    images : (n, c, h, w) floats; u : (n, 4), drawn evenly from [0, 1)
    area : share of the image's area; ratio : width to height
    """
    import torch
    from torch.nn import functional as F

    share = area[0] + (area[1] - area[0]) * u[:, 0]
    first, last = (math.log(r) for r in ratio)
    shape = torch.exp(first + (last - first) * u[:, 1])
    shape = shape * images.shape[2] / images.shape[3]  # the grid counts halves of the sides
    wide, tall = ((share * r).sqrt().clamp(max=1) for r in (shape, 1 / shape))
    theta = images.new_zeros((len(images), 2, 3))
    theta[:, 0, 0], theta[:, 1, 1] = wide, tall
    theta[:, 0, 2] = (2 * u[:, 2] - 1) * (1 - wide)
    theta[:, 1, 2] = (2 * u[:, 3] - 1) * (1 - tall)
    grid = F.affine_grid(theta, [*images.shape[:2], size, size], align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _three_channels(image: Pixels) -> Pixels:
    """(h, w), (h, w, 1) or (h, w, 3) uint8 -> (h, w, 3)."""
    channels = {2: 1, 3: image.shape[-1]}.get(image.ndim)
    if image.dtype != np.uint8 or not image.size or channels not in (1, 3):
        detail = f"an image is {image.dtype} {image.shape}"
        raise InputError(detail, "give (h, w, 3) uint8 arrays", field="images")
    if channels == 1:
        image = np.repeat(image.reshape(*image.shape[:2], 1), 3, axis=2)
    return image
