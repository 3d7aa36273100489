"""`size:S:NAME`: an encoder that sees images at another side than it was trained at.

A convolutional network with mean pooling takes images of any size. Larger images show finer detail
and take longer, in proportion to their area.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

import numpy as np

from cala.encoders.base import Encoder
from cala.encoders.registry import Device, load_plain
from cala.errors import InputError
from cala.files import first_line, shown

LEAST, MOST = 16, 1024


def load_size(rest: str, device: Device = "cpu") -> Encoder:
    """Load `size:S:NAME`: the encoder NAME on images of S × S pixels."""
    text, _, name = rest.partition(":")
    side = int(text) if re.fullmatch("[1-9][0-9]{1,3}", text) else 0
    if not LEAST <= side <= MOST or not name or name.startswith("size:"):
        raise InputError(
            f"size:{shown(rest)} is not size:S:NAME with S from {LEAST} to {MOST}",
            "write it as size:288:efficientnet-lite0",
            field="encoder",
        )
    return at_size(load_plain(name, device), side)


def at_size(encoder: Encoder, size: int) -> Encoder:
    """Return the encoder for images of another side; the share that is cropped stays the same."""
    old = encoder.transform
    if size == old.size:
        return encoder
    transform = replace(old, size=size, resize=max(size, round(old.resize * size / old.size)))
    try:
        found = encoder.forward(np.zeros((1, 3, size, size), np.float32))
        fits = found.shape == (1, encoder.dim)
        why = f"its embedding has shape {tuple(found.shape)}"
    except Exception as error:  # whatever a network raises on an input that it does not take
        fits, why = False, first_line(error)
    if not fits:
        raise InputError(
            f"{encoder.name} does not take images of {size} × {size} pixels ({why})",
            f"use its own size, {old.size}",
            field="encoder",
        )
    known = hashlib.sha256(f"{encoder.fingerprint} {size} pixels".encode()).hexdigest()
    name = f"size:{size}:{encoder.name}"
    return replace(encoder, name=name, transform=transform, fingerprint=known)
