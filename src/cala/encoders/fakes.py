"""Image-level fake classes (Eq. 1): mix the images of two base classes, then encode."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cala.core.cala import mix
from cala.core.fakes import FakePool, draw_pairs, draw_parents
from cala.core.rows import ClassRows
from cala.data.decoding import Pixels
from cala.data.images import ImageSplit, Rows
from cala.encoders.base import Encoder, Float32Array
from cala.encoders.embed import BATCH_ROWS, Count, encode_views
from cala.encoders.transform import stack_rows
from cala.errors import InputError

FAKE_PAIRS = 600
FAKE_IMAGES = 25
PARENTS = 1 << 30  # bytes of all parents, were they decoded at once
MEMORY = 1 << 27  # bytes of parents that are decoded at once


def encode_fakes(
    split: ImageSplit,
    rows: Rows,
    encoder: Encoder,
    *,
    pairs: int = FAKE_PAIRS,
    images: int = FAKE_IMAGES,
    tta: str = "none",
    crops: int = 0,
    seed: int = 0,
    advance: Count = lambda done: None,
) -> FakePool:
    """Mix `pairs` fake classes of `images` images each and encode them, each once, cached.

    rows : training rows of the base classes, whose labels are 0..B-1
    crops : number of crops that shots are averaged over, as in `embed`; queries are not
    advance : called with the number of mixed images that were just finished, once for each use
    """
    if pairs < 1 or images < 1:
        detail = f"there are {pairs} fake classes of {images} images"
        raise InputError(detail, "use 1 or more of each", field="pairs")
    rng = np.random.default_rng(seed)
    by_class = _by_class(split.labels, rows, encoder, rng)
    chosen = draw_pairs(by_class.n_classes, pairs, rng)
    left, right, lam = (a.reshape(-1) for a in draw_parents(by_class, chosen, images, rng))
    used, place = np.unique(np.concatenate([left, right]), return_inverse=True)
    one, two = np.split(place, 2)
    lam = lam.astype(np.float32)
    parents = split.take(used)
    digests = _digests(parents.digests(), one.tolist(), two.tolist(), lam)

    room = _images(MEMORY, encoder)
    whole: list[Pixels] = []  # all parents, if these are few

    def mixed(wanted: list[int]) -> Callable[[slice], Float32Array]:
        both = np.stack([one[wanted], two[wanted]])
        if len(parents) <= room:
            whole[:] = whole or [stack_rows(parents, np.arange(len(parents)), encoder.transform)]
            pixels = whole[0]
        else:
            needed, at = np.unique(both, return_inverse=True)
            pixels = stack_rows(parents, needed, encoder.transform)
            both = at.reshape(both.shape)
        shares = lam[wanted][:, None, None, None]

        def inputs_of(now: slice) -> Float32Array:
            x_i, x_j = (encoder.transform.normalise(pixels[of[now]]) for of in both)
            return mix(x_i, x_j, shares[now])

        return inputs_of

    # Parents that do not fit are decoded again in every turn, which needs two per mixed image.
    turn = BATCH_ROWS if len(parents) <= room else max(1, room // 2)

    def encoded(crops: int) -> NDArray[np.float32]:
        found = encode_views(encoder, "mix", tta, digests, mixed, advance, turn, crops)
        return found.reshape(len(chosen), images, encoder.dim)

    return FakePool(encoded(0), chosen, encoded(crops) if crops else None)


def _by_class(labels: Rows, rows: Rows, encoder: Encoder, rng: np.random.Generator) -> ClassRows:
    """Return the rows of each class, drawn if all parents would be too many to decode."""
    columns = labels[rows]
    order = np.argsort(columns, kind="stable")
    found = ClassRows(rows[order], columns[order], int(columns.max()) + 1)
    limit = _images(PARENTS, encoder)
    if len(found) <= limit:
        return found
    return found.draw(max(2, limit // len(np.unique(columns))), rng)


def _images(memory: int, encoder: Encoder) -> int:
    """Return how many decoded images fit into `memory` bytes."""
    return memory // (3 * encoder.transform.size**2)


def _digests(
    parents: list[str], one: list[int], two: list[int], lam: NDArray[np.float32]
) -> list[bytes]:
    """Return the digest of each mixed image, made of its parents and λ."""
    whole = [bytes.fromhex(d) for d in parents]
    shares = lam.astype("<f4")
    return [
        hashlib.sha256(whole[i] + whole[j] + share.tobytes()).digest()
        for i, j, share in zip(one, two, shares, strict=True)
    ]
