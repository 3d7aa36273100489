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
from cala.encoders.embed import SEGMENT, TURN, Advance, batch_size, encode_views
from cala.errors import InputError

PAIRS = 600
IMAGES = 25
PARENTS = 1 << 30  # bytes of all parents, were they decoded at once
MEMORY = 1 << 27  # bytes of parents that are decoded at once


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

    room = _images(MEMORY, encoder)
    whole: list[Tensor] = []  # all parents, where these are few

    def mixed(wanted: list[int]) -> Iterator[Tensor]:
        for group in _groups(wanted, one, two, room):
            needed, at = torch.cat([one[group], two[group]]).unique(return_inverse=True)
            if len(parents) <= room:
                whole[:] = whole or [_stacked(parents, torch.arange(len(parents)), encoder)]
                pixels, at = whole[0], needed[at]
            else:
                pixels = _stacked(parents, needed, encoder)
            batches = (t.split(batch_size(encoder)) for t in (*at.split(len(group)), lam[group]))
            for first, second, share in zip(*batches, strict=True):
                x_i, x_j = (
                    encoder.transform.normalise(pixels[of].to(encoder.device))
                    for of in (first, second)
                )
                yield mix(x_i, x_j, share.to(x_i)[:, None, None, None])
            del pixels  # before the next ones are decoded

    # Parents that do not fit are decoded again in every turn, so turns are long then.
    turn = TURN if len(parents) <= room else SEGMENT
    features = encode_views(encoder, "mix", tta, digests, mixed, advance, turn)
    return FakePool(torch.from_numpy(features).unflatten(0, (len(chosen), images)), chosen)


def _bounded(
    labels: NDArray[np.int64],
    rows: NDArray[np.int64],
    encoder: Encoder,
    generator: torch.Generator,
) -> NDArray[np.int64]:
    """So many rows of each class that not too many parents have to be decoded."""
    limit = _images(PARENTS, encoder)
    if len(rows) <= limit:
        return rows
    each = max(2, limit // len(np.unique(labels)))
    order = torch.randperm(len(rows), generator=generator).numpy()
    kept = [order[labels[order] == label][:each] for label in np.unique(labels)]
    return rows[np.sort(np.concatenate(kept))]


def _images(memory: int, encoder: Encoder) -> int:
    """How many decoded images so many bytes hold."""
    return memory // (3 * encoder.transform.size**2)


def _groups(wanted: list[int], one: Tensor, two: Tensor, limit: int) -> Iterator[Tensor]:
    """`wanted` in order, in groups whose parents `one` and `two` are at most `limit`, or two."""
    group: list[int] = []
    needed: set[int] = set()
    for index in wanted:
        both = {int(one[index]), int(two[index])}
        if group and len(needed | both) > limit:
            yield torch.tensor(group)
            group, needed = [], set()
        group.append(index)
        needed |= both
    if group:
        yield torch.tensor(group)


def _stacked(parents: ImageSplit, rows: Tensor, encoder: Encoder) -> Tensor:
    """Decoded and resized: (n, size, size, 3) uint8."""
    size = encoder.transform.size
    pixels = torch.empty(len(rows), size, size, 3, dtype=torch.uint8)
    start = 0
    for batch in parents.batches(batch_size(encoder), rows.numpy()):
        pixels[start : start + len(batch)] = encoder.transform.stack(batch)
        start += len(batch)
    return pixels


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
