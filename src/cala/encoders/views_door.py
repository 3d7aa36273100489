"""`views:V:NAME`: an encoder of several views (SAVC) with the first V of them."""

from __future__ import annotations

import torch

from cala.encoders.base import Encoder
from cala.encoders.registry import load_encoder
from cala.encoders.views import at_most, n_views
from cala.errors import InputError


def views_door(rest: str, device: torch.device | str = "cpu") -> Encoder:
    count, colon, name = rest.partition(":")
    if not (count.isdecimal() and colon and name):
        raise InputError(f"views:{rest} should read views:V:NAME, such as views:1:bases/savc")
    encoder = load_encoder(name, device)
    most = n_views(encoder)
    if not 1 <= int(count) <= most:
        raise InputError(f"views:{rest}: {name} has {most} views, so give 1 to {most}")
    return at_most(encoder, int(count))
