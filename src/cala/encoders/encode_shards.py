"""A photo collection of any size -> a folder of shards, slice by slice of the sorted list.

A slice is encoded whole or not at all and its key names it, so a writer that was stopped goes on
with the slices that are missing, and every image is in exactly one. Nothing goes through the
embedding cache: the shards are what is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.cluster.ray_cluster import RayCluster
from cala.data.image_scan import in_order, use_workers
from cala.data.images import ArrayPixels, FilePixels, ImageSet, ImageSplit
from cala.data.progress import Advance
from cala.data.shard_writer import ShardWriter
from cala.encoders.base import Encoder
from cala.encoders.embed import TTA_MODES, slices
from cala.encoders.encode import base_fakes, counter, plan_fakes, provenance_of
from cala.encoders.fakes import FAKE_IMAGES, FAKE_PAIRS
from cala.encoders.leakage import check_fair, held_out
from cala.encoders.registry import load_encoder
from cala.encoders.transform import prepare_rows
from cala.errors import InputError
from cala.registry import check_choice

SHARD_ROWS = 4096
FAKES = "fake"


@dataclass(frozen=True)
class Slice:
    """Images that become one shard.

    base : labels of the base classes; tta : as for `embed`
    """

    key: str
    split: str
    images: ImageSplit
    base: tuple[int, ...]
    tta: str


@dataclass(frozen=True)
class EncodedSlice:
    """A slice's embeddings (n, d), and which rows the encoder never saw, where that is known."""

    x: NDArray[np.float32]
    holdout: NDArray[np.bool_] | None


Work = Callable[[Iterable[Slice]], Generator[tuple[Hashable, EncodedSlice], None, None]]
"""Encodes slices, in any order; yields the key of each with its embeddings."""


def encode_slice(
    encoder: Encoder, piece: Slice, advance: Callable[[int], None] = lambda images: None
) -> EncodedSlice:
    """Encode one slice, a batch at a time."""
    found = np.empty((len(piece.images), encoder.dim), dtype=np.float32)
    everything, transform = np.arange(len(found)), encoder.transform

    def encode(now: slice) -> int:
        pixels = prepare_rows(piece.images, everything[now], transform)
        found[now] = encoder.encode(transform.normalise(pixels), piece.tta)
        return len(pixels)

    with closing(in_order(encode, slices(len(found), encoder))) as finished:
        for done in finished:
            advance(done)
    train = piece.split == "train"
    return EncodedSlice(found, held_out(piece.images, piece.base, encoder) if train else None)


def encode_shards(
    images: ImageSet,
    encoder: Encoder,
    out: Path,
    *,
    base: Sequence[int],
    novel: Sequence[int] | None = None,
    tta: str = "none",
    half: bool = True,
    rows: int = SHARD_ROWS,
    pairs: int = FAKE_PAIRS,
    fake_images: int = FAKE_IMAGES,
    seed: int = 0,
    work: Work | None = None,
    advance: Advance = lambda done, total: None,
) -> Path:
    """Write, or resume, a folder of shards of both parts of a set and of its fake classes.

    rows : images per shard; half : store half precision
    work : what encodes slices; one after another in this process by default
    other arguments as for `encode_set`
    """
    check_choice("tta", tta, TTA_MODES)
    if rows < 1:
        raise InputError(f"rows per shard is {rows}", "use 1 or more", field="rows")
    base = sorted(base)
    seen = check_fair(images, encoder, base, novel)
    holdout = held_out(images.train, base, encoder) if pairs else None
    parents, pairs, each = plan_fakes(images.train, base, encoder, holdout, pairs, fake_images)
    bounds = [*_bounds("train", len(images.train), rows), *_bounds("test", len(images.test), rows)]
    provenance = {
        **provenance_of(images, encoder, tta, seen, _listed(images)),
        "base": list(base),
        "fakes": [pairs, each, seed] if pairs else None,
    }
    with ShardWriter(
        out,
        dim=encoder.dim,
        classes=images.classes,
        dtype="float16" if half else "float32",
        provenance=provenance,
        scale=encoder.scale,
        keys=[key for key, *_ in bounds] + [FAKES] * bool(pairs),
    ) as writer:
        missing = set(writer.missing)
        total = len(images.train) + len(images.test) + pairs * each
        count = counter(advance, total, done=sum(writer.manifest.rows.values()))
        under_way: dict[Hashable, Slice] = {}

        def slices() -> Iterator[Slice]:
            for key, split, start, stop in bounds:
                if key in missing:
                    part = _cut(getattr(images, split), start, stop)
                    under_way[key] = Slice(key, split, part, tuple(base), tta)
                    yield under_way[key]

        def here(pieces: Iterable[Slice]) -> Generator[tuple[str, EncodedSlice], None, None]:
            for piece in pieces:
                yield piece.key, encode_slice(encoder, piece, count)

        with closing((work or here)(slices())) as finished:
            for key, found in finished:
                piece = under_way.pop(key)
                part = piece.images
                writer.write(
                    piece.key, found.x, part.labels, piece.split, part.names, holdout=found.holdout
                )
                if work is not None:  # another process reports nothing before a slice is done
                    count(len(part))
        if FAKES in missing:
            options = {"pairs": pairs, "images": each, "tta": tta, "seed": seed, "advance": count}
            pool = base_fakes(images.train, base, parents, encoder, **options)
            numbers = np.arange(len(pool)).repeat(pool.images)
            features = pool.features.reshape(len(numbers), -1)
            writer.write(FAKES, features, numbers, "fake", pairs=pool.pairs[numbers])
        return writer.finish()


def on_ray(
    cluster: RayCluster,
    uri: str,
    encoder: Encoder,
    views: int | None = None,
    threads: int | None = None,
    engine: str = "auto",
) -> Work:
    """Encodes slices on a cluster, one worker per device, else per processor.

    uri : the encoder's, which every node loads for itself; encoder : as loaded here
    threads : of each worker on a processor, one by default
    """
    each = 1 if cluster.gpus else min(threads or 1, cluster.widest)
    count = cluster.gpus or max(1, cluster.cpus // each)
    device = "cuda" if cluster.gpus else "cpu"

    def work(pieces: Iterable[Slice]) -> Generator[tuple[Hashable, EncodedSlice], None, None]:
        located = ((p.key, replace(p, images=p.images.located())) for p in pieces)
        settings = (uri, device, views, engine, encoder.fingerprint, each)
        gpus = int(cluster.gpus > 0)
        return cluster.map(located, make_worker, *settings, count=count, cpus=each, gpus=gpus)

    return work


def make_worker(
    uri: str, device: str, views: int | None, engine: str, fingerprint: str, threads: int
) -> Callable[[Any], EncodedSlice]:
    """On a node: what encodes slices there."""
    use_workers(threads)
    encoder = load_encoder(uri, device, views, engine=engine, fingerprint=fingerprint)
    if encoder.fingerprint != fingerprint:
        raise InputError(
            f"encoder {uri} differs on a node of the cluster (fingerprint "
            f"{encoder.fingerprint[:12]}, here {fingerprint[:12]})",
            "put the same file there",
        )
    return lambda piece: encode_slice(encoder, piece)


def _bounds(split: str, count: int, rows: int) -> list[tuple[str, str, int, int]]:
    """Key, split, first row and the row behind the last of every slice."""
    starts = range(0, count, rows)
    stops = [min(start + rows, count) for start in starts]
    return [(f"{split}:{a}-{b}", split, a, b) for a, b in zip(starts, stops, strict=True)]


def _cut(part: ImageSplit, start: int, stop: int) -> ImageSplit:
    """A slice that holds no more than its own images."""
    cut = part.take(np.arange(start, stop))
    if isinstance(cut.pixels, ArrayPixels):
        own = ArrayPixels(cut.pixels.array[cut.pixels.index], np.arange(len(cut)))
        return replace(cut, pixels=own)
    return cut


def _listed(images: ImageSet) -> str:
    """SHA-256 of names, labels and sizes of files: nothing of a collection of this size is read."""
    digest = hashlib.sha256()
    for part in (images.train, images.test):
        sizes = [0] * len(part)
        if isinstance(part.pixels, FilePixels):
            paths = part.pixels.paths
            sizes = [path.stat().st_size if path.is_file() else -1 for path in paths]
        for name, label, size in zip(part.names, part.labels.tolist(), sizes, strict=True):
            digest.update(f"{name}\0{label}\0{size}\n".encode("utf-8", "surrogateescape"))
        digest.update(b"\n")
    return f"names:{digest.hexdigest()}"
