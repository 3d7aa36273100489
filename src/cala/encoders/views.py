"""Fantasy views (SAVC): an image rotated and with its colours permuted, and encoders that use them.

Which view is which does not depend on their number: the first V of M are the V views.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cala.encoders.base import Encoder
from cala.encoders.registry import Device, load_plain
from cala.encoders.torch_module import TorchForward
from cala.errors import InputError

TURNS = (0, 2, 1, 3)  # quarter turns: with only two views, the second is half a turn
_COLOURS = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
VIEWS = "views"  # the part of an encoder file that holds the number of views
MOST_VIEWS = len(TURNS) * len(_COLOURS)


def fantasy(images: Tensor, view: int) -> Tensor:
    """One view of all images: (n, 3, s, s) -> (n, 3, s, s); view 0 is the image itself.

    >>> fantasy(torch.arange(12).reshape(1, 3, 2, 2), 1)[0, 0]
    tensor([[3, 2],
            [1, 0]])
    """
    if not 0 <= view < MOST_VIEWS:
        raise InputError(f"fantasy view is {view}", f"use 0 to {MOST_VIEWS - 1}", field="view")
    colour, turn = divmod(view, len(TURNS))
    if colour:
        images = images[:, list(_COLOURS[colour])]
    return turned(images, TURNS[turn])


def turned(images: Tensor, quarters: int) -> Tensor:
    """`rot90` of the last two axes in operations that ONNX has: (…, s, s) -> (…, s, s)."""
    if quarters % 2:
        images = images.transpose(-2, -1)
    axes = ([], [-2], [-2, -1], [-1])[quarters]
    return images.flip(axes) if axes else images


class SideBySide(nn.Module):
    """Unit embeddings of the first views, concatenated: (n, 3, s, s) -> (n, V · d)."""

    def __init__(self, module: nn.Module, views: int) -> None:
        super().__init__()
        self.module, self.views = module, views
        self.dim = views * int(module.dim)  # type: ignore[arg-type]

    def forward(self, images: Tensor) -> Tensor:
        # One view at a time: the batch already has the size that suits the encoder.
        each = (self.module(fantasy(images, view)) for view in range(self.views))
        return torch.cat([F.normalize(found, dim=1) for found in each], dim=1)


def with_views(module: nn.Module, views: int) -> nn.Module:
    """Return the module unchanged for one view, else wrapped to embed several."""
    # A new module is in training mode, which a caller may restore later: copy the inner mode.
    return module if views == 1 else SideBySide(module, views).train(module.training)


def at_most(encoder: Encoder, views: int) -> Encoder:
    """Limit an encoder to its first views: faster, and less accurate."""
    if views < 1:
        raise InputError(f"views is {views}", "use 1 or more", field="views")
    whole = encoder.module
    if not isinstance(whole, SideBySide) or views >= whole.views:
        return encoder
    fewer = with_views(whole.module, views)
    known = hashlib.sha256(f"{encoder.fingerprint} {views} views".encode())
    return replace(
        encoder,
        name=f"views:{views}:{encoder.name}",
        dim=int(fewer.dim),  # type: ignore[arg-type]
        forward=TorchForward(fewer, encoder.device),
        fingerprint=known.hexdigest(),
        parts={**encoder.parts, VIEWS: np.array([views], np.float32)},
    )


def load_views(rest: str, device: Device = "cpu") -> Encoder:
    """Load `views:V:NAME`: an encoder of several views with the first V of them."""
    count, colon, name = rest.partition(":")
    if not (re.fullmatch("[0-9]{1,4}", count) and colon and name):
        detail = f"views:{rest} is not views:V:NAME"
        raise InputError(detail, "write it as views:1:bases/savc", field="encoder")
    encoder = load_plain(name, device)
    most = encoder.module.views if isinstance(encoder.module, SideBySide) else 1
    if not 1 <= int(count) <= most:
        detail = f"views:{rest} asks for {count} views"
        raise InputError(detail, f"{name} has {most}: use 1 to {most}", field="views")
    return at_most(encoder, int(count))
