"""A photo collection of any size -> a folder of shards, slice by slice of the sorted list.

A slice is encoded whole or not at all and its key names it, so a writer that was stopped goes on
with the slices that are missing, and every image is in exactly one. Nothing goes through the
embedding cache: the shards are what is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cala.data.images import ArrayPixels, FilePixels, ImageSet, ImageSplit
from cala.data.shard_writer import ShardWriter
from cala.encoders.base import Encoder
from cala.encoders.embed import TTA, batch_size
from cala.encoders.encode import base_fakes, plan_fakes, provenance_of
from cala.encoders.fakes import IMAGES, PAIRS
from cala.encoders.leakage import check_fair, held_out
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
class Encoded:
    """A slice's embeddings (n, d), and which rows the encoder never saw, where that is known."""

    x: NDArray[np.float32]
    holdout: NDArray[np.bool_] | None


Advance = Callable[[int, int], None]
Work = Callable[[Iterable[Slice]], Generator[tuple[Slice, Encoded], None, None]]
"""Encodes slices, in any order."""


def encode_slice(
    encoder: Encoder, piece: Slice, advance: Callable[[int], None] = lambda images: None
) -> Encoded:
    """Encode one slice, a batch at a time."""
    found = np.empty((len(piece.images), encoder.dim), dtype=np.float32)
    done = 0
    for pixels in piece.images.batches(batch_size(encoder)):
        rows = encoder.encode(encoder.inputs(pixels), piece.tta)
        found[done : done + len(rows)] = rows.numpy()
        done += len(rows)
        advance(len(rows))
    train = piece.split == "train"
    return Encoded(found, held_out(piece.images, piece.base, encoder) if train else None)


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
    pairs: int = PAIRS,
    fake_images: int = IMAGES,
    seed: int = 0,
    work: Work | None = None,
    advance: Advance = lambda done, total: None,
) -> Path:
    """Write, or go on with, a folder of shards of both parts of a set and of its fake classes.

    rows : images per shard; half : store half precision
    work : what encodes slices; one after another in this process by default
    other arguments as for `encode_set`
    """
    check_choice("tta", tta, TTA)
    if rows < 1:
        raise InputError(f"shards of {rows} images are not possible: use 1 or more")
    base = sorted(base)
    seen = check_fair(images, encoder, base, novel)
    holdout = held_out(images.train, base, encoder) if pairs else None
    parents, pairs, each = plan_fakes(images.train, base, encoder, holdout, pairs, fake_images)
    bounds = [*_bounds("train", len(images.train), rows), *_bounds("test", len(images.test), rows)]
    total = len(images.train) + len(images.test) + pairs * each
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
        done = sum(shard.rows for shard in writer.manifest.shards)
        advance(done, total)

        def count(more: int) -> None:
            nonlocal done
            done += more
            advance(done, total)

        def pieces() -> Iterator[Slice]:
            for key, split, start, stop in bounds:
                if key in missing:
                    part = images.train if split == "train" else images.test
                    yield Slice(key, split, _cut(part, start, stop), tuple(base), tta)

        missing = set(writer.missing)
        # In another process nothing is known of a slice before it is done.
        here = work is None
        with closing((work or _here(encoder, count))(pieces())) as finished:
            for piece, found in finished:
                labels, names = piece.images.labels, piece.images.names
                writer.write(
                    piece.key, found.x, labels, piece.split, names=names, holdout=found.holdout
                )
                if not here:
                    count(len(labels))
        if FAKES in missing:
            options = {"pairs": pairs, "images": each, "tta": tta, "seed": seed, "advance": count}
            pool = base_fakes(images.train, base, parents, encoder, **options)
            numbers = np.arange(len(pool)).repeat(pool.images)
            features = pool.features.reshape(len(numbers), -1)
            writer.write(FAKES, features, numbers, "fake", pairs=pool.pairs[numbers])
        return writer.finish()


def _here(encoder: Encoder, count: Callable[[int], None]) -> Work:
    def work(pieces: Iterable[Slice]) -> Generator[tuple[Slice, Encoded], None, None]:
        for piece in pieces:
            yield piece, encode_slice(encoder, piece, count)

    return work


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
