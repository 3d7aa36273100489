"""Image-level fake classes (Eq. 1): mix the images of two base classes, then encode."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cala.core.mixing import FakePool, draw_pairs, draw_parents, mix
from cala.data.images import ImageSplit
from cala.encoders.base import Encoder
from cala.encoders.embed import Advance, batch_size, encode_views
from cala.errors import InputError

PAIRS = 600
IMAGES = 25
MEMORY = 1 << 30  # bytes of decoded parents


def fake_pool(
    split: ImageSplit,
    rows: NDArray[np.int64],
    encoder: Encoder,
    *,
    pairs: int = PAIRS,
    images: int = IMAGES,
    tta: str = "none",
    seed: int = 0,
    advance: Advance = lambda done: None,
) -> FakePool:
    """`pairs` fake classes of `images` mixed images each, through the encoder once and cached.

    rows : training rows of the base classes, whose labels are 0..B-1
    advance : called with the number of mixed images that were just finished
    """
    if pairs < 1 or images < 1:
        raise InputError(f"{pairs} fake classes of {images} images: use 1 or more of each")
    generator = torch.Generator().manual_seed(seed)
    rows = _bounded(split.labels[rows], rows, encoder, generator)
    columns = torch.from_numpy(split.labels[rows])
    chosen = draw_pairs(int(columns.max()) + 1, pairs, generator)
    left, right, lam = (t.flatten() for t in draw_parents(columns, chosen, images, generator))
    used, place = torch.cat([left, right]).unique(return_inverse=True)
    one, two = place.split(len(left))
    parents = split.take(rows[used.numpy()])
    digests = _digests(parents.digests(), one.tolist(), two.tolist(), lam.numpy())
    pixels: list[Tensor] = []

    def mixed(wanted: list[int]) -> Iterator[Tensor]:
        if not pixels:  # decoded only when something is to be encoded
            stacks = [encoder.transform.stack(batch) for batch in parents.batches(256)]
            pixels.append(torch.cat(stacks))
        for part in torch.tensor(wanted).split(batch_size(encoder)):
            first, second = (
                encoder.transform.normalise(pixels[0][of[part]].to(encoder.device))
                for of in (one, two)
            )
            yield mix(first, second, lam[part].to(first)[:, None, None, None])

    features = encode_views(encoder, "mix", tta, digests, mixed, advance)
    return FakePool(torch.from_numpy(features).unflatten(0, (len(chosen), images)), chosen)


def _bounded(
    labels: NDArray[np.int64],
    rows: NDArray[np.int64],
    encoder: Encoder,
    generator: torch.Generator,
) -> NDArray[np.int64]:
    """So many rows of each class that all decoded parents fit into memory."""
    limit = MEMORY // (3 * encoder.transform.size**2)
    if len(rows) <= limit:
        return rows
    each = max(2, limit // len(np.unique(labels)))
    order = torch.randperm(len(rows), generator=generator).numpy()
    kept = [order[labels[order] == label][:each] for label in np.unique(labels)]
    return rows[np.sort(np.concatenate(kept))]


def _digests(
    parents: list[str], one: list[int], two: list[int], lam: NDArray[np.float32]
) -> list[bytes]:
    """What a mixed image is known by: its parents and λ."""
    whole = [bytes.fromhex(d) for d in parents]
    shares = lam.astype("<f4")
    return [
        hashlib.sha256(whole[i] + whole[j] + share.tobytes()).digest()
        for i, j, share in zip(one, two, shares, strict=True)
    ]
