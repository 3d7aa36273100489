"""Images -> embeddings, each image once, ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from cala.data.images import ImageSplit
from cala.encoders.base import Encoder
from cala.encoders.cache import EmbeddingCache
from cala.errors import InputError
from cala.files import counted, shown
from cala.registry import check_choice

Floats = NDArray[np.float32]
Advance = Callable[[int], None]
Make = Callable[[list[int]], Iterator[Tensor]]
View = Callable[[Tensor], Tensor]

TTA = ("none", "flip")
SEGMENT = 2048  # embeddings per file at the most
TURN = 256  # embeddings that are lost at most when a process is killed
PAUSE = 0.02  # seconds between turns, in which a process that waits can take the lock
# Pixels per forward pass. On a processor larger batches make tensors so large that each is handed
# back to the system and asked for again: half of the time goes there with 16 images of 224 pixels.
CPU_PIXELS = 4 * 224 * 224
DEVICE_PIXELS = 64 * 224 * 224


def embed(
    split: ImageSplit,
    encoder: Encoder,
    *,
    rows: ArrayLike | None = None,
    tta: str = "none",
    advance: Advance = lambda done: None,
) -> Floats:
    """Embeddings of a split's images: (n, d). What the cache knows is not computed.

    tta : `flip` averages the embedding of each image and of its mirror image
    advance : called with the number of images that were just finished
    """
    part = split if rows is None else split.take(rows)
    digests = [bytes.fromhex(d) for d in _readable(part)]
    batch = batch_size(encoder)

    def images(chosen: list[int]) -> Iterator[Tensor]:
        for pixels in part.batches(batch, chosen):
            yield encoder.inputs(pixels)

    return encode_views(encoder, "plain", tta, digests, images, advance)


def encode_views(
    encoder: Encoder,
    kind: str,
    tta: str,
    digests: Sequence[bytes],
    make: Make,
    advance: Advance = lambda done: None,
    turn: int = TURN,
) -> Floats:
    """`encode_missing`, averaged over the views that `tta` asks for: (n, d).

    kind : `plain` images or the `mix` of two
    """
    check_choice("tta", tta, TTA)
    views: dict[str, View] = {kind: _same}
    if tta == "flip":
        views["flip" if kind == "plain" else f"{kind}-flip"] = _mirror
    caches = encode_missing(encoder, views, digests, make, advance, turn)
    mean, there = caches[0].find(digests)
    for cache in caches[1:]:
        for start in range(0, len(digests), SEGMENT):  # a second copy only of a part
            part = slice(start, start + SEGMENT)
            more, also = cache.find(digests[part])
            mean[part] += more
            there[part] &= also
    if not there.all():
        raise _lost(caches[0])
    if len(caches) > 1:
        mean /= len(caches)
    return mean


def encode_missing(
    encoder: Encoder,
    views: Mapping[str, View],
    digests: Sequence[bytes],
    make: Make,
    advance: Advance = lambda done: None,
    turn: int = TURN,
) -> list[EmbeddingCache]:
    """For each view, a cache that knows all digests; what no view lacks is not even decoded.

    make : rows -> their inputs for the encoder, batch by batch
    turn : images after which what is done is written, and other processes have their turn; where
        these work on the same images, each finds what the others have left
    """
    caches = [EmbeddingCache(encoder, view) for view in views]
    known = np.logical_and.reduce([cache.has(digests) for cache in caches])
    advance(int(known.sum()))
    rows: dict[bytes, list[int]] = {}
    for row in np.flatnonzero(~known).tolist():
        rows.setdefault(digests[row], []).append(row)
    unknown = list(rows.values())
    writers = [_Writer(cache, encoder.dim) for cache in caches] if unknown else []
    for start in range(0, len(unknown), turn):
        if start:
            time.sleep(PAUSE)
        part = unknown[start : start + turn]
        with _locked(caches):
            late = [cache.has([digests[same[0]] for same in part]) for cache in caches]
            ready = np.logical_and.reduce(late)
            advance(sum(len(part[place]) for place in np.flatnonzero(ready).tolist()))
            places = np.flatnonzero(~ready).tolist()
            done = 0
            for inputs in make([part[place][0] for place in places]) if places else ():
                batch = places[done : done + len(inputs)]
                for view, there, writer in zip(views.values(), late, writers, strict=True):
                    new = [i for i, place in enumerate(batch) if not there[place]]
                    if new:
                        chosen = inputs if len(new) == len(batch) else inputs[new]
                        embeddings = encoder.encode(view(chosen)).numpy()
                        writer.add([digests[part[batch[i]][0]] for i in new], embeddings)
                done += len(batch)
                advance(sum(len(part[place]) for place in batch))
            for writer in writers:
                writer.flush()
    if not all(cache.has(digests).all() for cache in caches):
        raise _lost(caches[0])
    return caches


@contextmanager
def _locked(caches: Sequence[EmbeddingCache]) -> Iterator[None]:
    """All caches at once, always in the same order."""
    with ExitStack() as locked:
        for cache in sorted(caches, key=lambda c: c.folder):
            locked.enter_context(cache.lock)
        yield


def _lost(cache: EmbeddingCache) -> InputError:
    return InputError(
        f"the embedding cache {shown(cache.folder)} lost what was just written: look at "
        "the disk, or set CALA_CACHE to another folder"
    )


class _Writer:
    """Hands embeddings to a cache in segments of a fair size.

    They are copied into one block: small arrays kept between batches of pixels would leave holes
    in memory that no later batch fits into, gigabytes of them.
    """

    def __init__(self, cache: EmbeddingCache, dim: int) -> None:
        self.cache = cache
        self.digests: list[bytes] = []
        self.block = np.empty((SEGMENT, dim), dtype=np.float32)

    def add(self, digests: list[bytes], embeddings: Floats) -> None:
        while digests:
            start = len(self.digests)
            count = min(len(digests), SEGMENT - start)
            self.block[start : start + count] = embeddings[:count]
            self.digests += digests[:count]
            digests, embeddings = digests[count:], embeddings[count:]
            if len(self.digests) == SEGMENT:
                self.flush()

    def flush(self) -> None:
        if self.digests:
            self.cache.put(self.digests, self.block[: len(self.digests)])
        self.digests = []


def _same(inputs: Tensor) -> Tensor:
    return inputs


def _mirror(inputs: Tensor) -> Tensor:
    return inputs.flip(-1)


def batch_size(encoder: Encoder) -> int:
    """Images per forward pass: fewer of larger ones."""
    pixels = CPU_PIXELS if encoder.device.type == "cpu" else DEVICE_PIXELS
    return max(1, min(256, pixels // encoder.transform.size**2))


def _readable(part: ImageSplit) -> list[str]:
    digests = part.digests()
    lost = [name for name, digest in zip(part.names, digests, strict=True) if len(digest) != 64]
    if lost:
        raise InputError(
            f"{counted(len(lost), 'image')} cannot be read, such as {lost[0]}: mend or skip them"
        )
    return digests
