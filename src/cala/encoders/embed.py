"""Images -> embeddings, each image once, ever."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import closing

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cala.data.cache import RowCache
from cala.data.image_scan import in_order, worker_count
from cala.data.images import ImageSplit
from cala.encoders.base import Encoder, Float32Array
from cala.encoders.transform import prepare_rows, resized_crop
from cala.errors import InputError
from cala.files import counted, shown
from cala.registry import check_choice

Places = NDArray[np.int64]
Count = Callable[[int], None]  # called with the number of images just finished
_Make = Callable[[list[int]], Callable[[slice], Float32Array]]
View = Callable[[Float32Array, Sequence[bytes]], Float32Array]  # inputs and their digests -> inputs

TTA_MODES = ("none", "flip")
CROP_AREA = (0.5, 1.0)  # share of an image that a crop shows
LOOK_UP = 2048  # embeddings that are copied out of the cache at a time
# Images after which what is done is kept; lost at most when a process is killed. More with many
# workers, which wait for each other at the end.
BATCH_ROWS = 256
# Pixels per forward pass. On a processor larger batches make tensors so large that each is handed
# back to the system and asked for again: half of the time goes there with 16 images of 224 pixels.
CPU_PIXELS = 4 * 224 * 224
DEVICE_PIXELS = 64 * 224 * 224


class EmbeddingCache:
    """Embeddings that one encoder gave under one view, by the digest of the image.

    view : `plain`, `flip` or `mix`
    """

    def __init__(self, encoder: Encoder, view: str = "plain") -> None:
        self.name, self.dim = f"{encoder.key} {view} ".encode(), encoder.dim
        self.rows = RowCache("embeddings")

    def find(self, digests: Sequence[bytes]) -> tuple[Float32Array, NDArray[np.bool_]]:
        """Embeddings (n, d) and which of them are known (n,); the others are 0."""
        keys = [self._key(digest) for digest in digests]
        rows, known = np.zeros((len(keys), self.dim), np.float32), np.zeros(len(keys), bool)
        found = self.rows.get(list(dict.fromkeys(keys)))
        for place, key in enumerate(keys):
            if len(found.get(key, b"")) == 4 * self.dim:
                rows[place], known[place] = np.frombuffer(found[key], "<f4"), True
        return rows, known

    def put(self, digests: Sequence[bytes], embeddings: Float32Array) -> None:
        keys = map(self._key, digests)
        self.rows.put(zip(keys, (row.astype("<f4").tobytes() for row in embeddings), strict=True))

    def _key(self, digest: bytes) -> bytes:
        return hashlib.sha256(self.name + digest).digest()


def embed(
    split: ImageSplit,
    encoder: Encoder,
    *,
    rows: ArrayLike | None = None,
    tta: str = "none",
    crops: int = 0,
    advance: Count = lambda done: None,
) -> Float32Array:
    """Embeddings of a split's images: (n, d). What the cache knows is not computed.

    tta : `flip` averages the embedding of each image and of its mirror image
    crops : for shots, average over the image, its mirror image and this many random crops
    advance : called with the number of images that were just finished
    """
    part = split if rows is None else split.take(rows)
    digests = [bytes.fromhex(d) for d in _readable(part)]
    transform = encoder.transform

    def make(chosen: list[int]) -> Callable[[slice], Float32Array]:
        return lambda now: transform.normalise(prepare_rows(part, chosen[now], transform))

    return encode_views(encoder, "plain", tta, digests, make, advance, crops=crops)


def encode_views(
    encoder: Encoder,
    kind: str,
    tta: str,
    digests: Sequence[bytes],
    make: _Make,
    advance: Count = lambda done: None,
    turn: int | None = None,
    crops: int = 0,
) -> Float32Array:
    """Embeddings by digest, averaged over the views that `tta` and `crops` ask for: (n, d).

    kind : `plain` images or the `mix` of two
    make : rows -> a function that gives the inputs for the encoder of a slice of them; several
        threads call it. Not called for what is known
    turn : images after which what is done is kept; processes that work on the same images share
        these turns among them
    """
    check_choice("tta", tta, TTA_MODES)
    views: dict[str, View] = {kind: lambda inputs, digests: inputs}
    prefix = "" if kind == "plain" else f"{kind}-"
    if tta == "flip" or crops:
        views[f"{prefix}flip"] = lambda inputs, digests: inputs[..., ::-1]
    views |= {f"{prefix}crop{number}": _crop(number) for number in range(crops)}
    work = _Work(encoder, views, digests)
    everything = np.arange(len(work.digests))
    for start in range(0, len(everything), LOOK_UP):
        advance(work.look_up(everything[start : start + LOOK_UP]))
    left, size = work.unfinished(everything), turn or BATCH_ROWS * max(1, worker_count() // 4)
    turns = [left[start : start + size] for start in range(0, len(left), size)]
    for wait in (False, True):  # first what no other process is encoding
        busy = []
        for places in turns:
            with work.caches[0].rows.claim(work.digests[places[0]], wait) as mine:
                if mine:
                    work.encode(places, make, advance)
                else:
                    busy.append(places)
        turns = busy
    if len(views) > 1:
        work.sums /= len(views)
    return work.sums if len(work.sums) == len(digests) else work.sums[work.place]


class _Work:
    """Embeddings of different images, summed over some views as far as these are known.

    digests : of all images, each once
    place, first, counts : the place of each row among them; the first row of each, and how many
    """

    def __init__(self, encoder: Encoder, views: dict[str, View], digests: Sequence[bytes]) -> None:
        self.encoder, self.views = encoder, list(views.values())
        self.caches = [EmbeddingCache(encoder, view) for view in views]
        number: dict[bytes, int] = {}
        self.place = np.array([number.setdefault(d, len(number)) for d in digests], dtype=np.int64)
        self.digests = list(number)
        _, self.first, self.counts = np.unique(self.place, return_index=True, return_counts=True)
        self.sums = np.zeros((len(number), encoder.dim), dtype=np.float32)
        self.known = np.zeros((len(views), len(number)), dtype=bool)

    def unfinished(self, places: Places) -> Places:
        return places[~self.known[:, places].all(0)]

    def look_up(self, places: Places) -> int:
        """Take what the caches know; returns the number of rows that this finished."""
        missing = self.unfinished(places)
        for view, cache in enumerate(self.caches):
            asked = missing[~self.known[view, missing]]
            found, there = cache.find([self.digests[place] for place in asked])
            self._add(view, asked[there], found[there])
        return int(self.counts[missing[self.known[:, missing].all(0)]].sum())

    def encode(self, places: Places, make: _Make, advance: Count) -> None:
        """Encode what is still missing of these places, and keep it."""
        advance(self.look_up(places))  # another process may have done it meanwhile
        left = self.unfinished(places)
        lacks = ~self.known[:, left]
        # One block: small arrays kept between batches of pixels would leave holes in memory that
        # no later batch fits into, gigabytes of them.
        blocks = np.empty((*lacks.shape, self.encoder.dim), dtype=np.float32)
        inputs_of = make(self.first[left].tolist()) if len(left) else None

        def encode(now: slice) -> slice:
            assert inputs_of is not None
            inputs = inputs_of(now)
            for view, lack, block in zip(self.views, lacks[:, now], blocks[:, now], strict=True):
                if lack.any():
                    digests = [self.digests[place] for place in left[now][lack]]
                    chosen = inputs if lack.all() else inputs[lack]
                    block[lack] = self.encoder.encode(view(chosen, digests))
            return now

        with closing(in_order(encode, slices(len(left), self.encoder))) as finished:
            for now in finished:
                advance(int(self.counts[left[now]].sum()))
        for number, (cache, lack) in enumerate(zip(self.caches, lacks, strict=True)):
            cache.put([self.digests[place] for place in left[lack]], blocks[number, lack])
            self._add(number, left[lack], blocks[number, lack])

    def _add(self, view: int, places: Places, embeddings: Float32Array) -> None:
        self.sums[places] += embeddings
        self.known[view, places] = True


def _crop(number: int) -> View:
    """The crop of this number, which the image's digest decides."""

    def crop(inputs: Float32Array, digests: Sequence[bytes]) -> Float32Array:
        import torch

        seeds = [[number, *np.frombuffer(digest, "<u4").tolist()] for digest in digests]
        u = np.stack([np.random.default_rng(seed).random(4) for seed in seeds])
        tensor = torch.from_numpy(inputs)
        part = resized_crop(tensor, torch.from_numpy(u).to(tensor), inputs.shape[-1], CROP_AREA)
        return part.numpy()

    return crop


def batch_size(encoder: Encoder) -> int:
    """Images per forward pass: fewer of larger ones."""
    usual = CPU_PIXELS if encoder.device == "cpu" else DEVICE_PIXELS
    pixels = getattr(encoder.forward, "pixels", usual)
    return max(1, min(256, pixels // encoder.transform.size**2))


def slices(count: int, encoder: Encoder) -> list[slice]:
    """Rows 0..count-1 in batches of the encoder."""
    step = batch_size(encoder)
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def _readable(part: ImageSplit) -> list[str]:
    digests = part.digests()
    lost = [name for name, digest in zip(part.names, digests, strict=True) if len(digest) != 64]
    if lost:
        raise InputError(
            f"{counted(len(lost), 'image')} cannot be read, such as {shown(lost[0])}",
            "repair or remove them",
        )
    return digests
