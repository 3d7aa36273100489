"""An encoder that looks at several views of an image (SAVC): one embedding, side by side."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cala.encoders.base import Encoder
from cala.encoders.fantasy import VIEWS, fantasy
from cala.errors import InputError


class SideBySide(nn.Module):
    """Unit embeddings of the first views, one behind the other: (n, 3, s, s) -> (n, V · d)."""

    def __init__(self, module: nn.Module, views: int) -> None:
        super().__init__()
        self.module, self.views = module, views
        self.dim = views * int(module.dim)  # type: ignore[arg-type]

    def forward(self, images: Tensor) -> Tensor:
        # One view after the other: a batch is as large as the encoder likes it already.
        each = (self.module(fantasy(images, view)) for view in range(self.views))
        return torch.cat([F.normalize(found, dim=1) for found in each], dim=1)


def with_views(module: nn.Module, views: int) -> nn.Module:
    """A module as it is for one view, else for several of them."""
    # A module is born in training mode: whoever restores that mode would train what is inside.
    return module if views == 1 else SideBySide(module, views).train(module.training)


def n_views(encoder: Encoder) -> int:
    """How many views of an image an encoder looks at."""
    return encoder.forward.views if isinstance(encoder.forward, SideBySide) else 1


def at_most(encoder: Encoder, views: int) -> Encoder:
    """The same encoder with no more than so many views, the first: quicker, and less accurate."""
    if views < 1:
        raise InputError(f"views is {views}: use 1 or more")
    whole = encoder.forward
    if not isinstance(whole, SideBySide) or views >= whole.views:
        return encoder
    fewer = with_views(whole.module, views)
    known = hashlib.sha256(f"{encoder.fingerprint} {views} views".encode())
    return replace(
        encoder,
        name=f"views:{views}:{encoder.name}",
        dim=int(fewer.dim),  # type: ignore[arg-type]
        forward=fewer,
        fingerprint=known.hexdigest(),
        parts={**encoder.parts, VIEWS: np.array([views], np.float32)},
    )
