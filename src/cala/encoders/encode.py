"""A whole image set -> embeddings with everything that a protocol needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cala.core.fakes import pool_shape
from cala.data.embeddings import Embeddings
from cala.data.images import ImageSet, ImageSplit
from cala.encoders.base import Encoder
from cala.encoders.embed import embed
from cala.encoders.fakes import IMAGES, PAIRS, fake_pool
from cala.encoders.seen import check_novel, seen_classes
from cala.errors import InputError
from cala.files import shown

Advance = Callable[[int, int], None]


def encode_set(
    images: ImageSet,
    encoder: Encoder,
    *,
    base: Sequence[int],
    novel: Sequence[int] | None = None,
    tta: str = "none",
    pairs: int = PAIRS,
    fake_images: int = IMAGES,
    shot_views: int = 0,
    shot_rows: ArrayLike = (),
    seed: int = 0,
    advance: Advance = lambda done, total: None,
) -> Embeddings:
    """Embeddings of both parts of a set, and fake classes mixed from its base classes.

    base : labels of the base classes; pairs : fake classes, 0 for none; where half of the base
        classes have fewer than `fake_images` images, more fake classes with fewer images each
    shot_views : shots are averaged over the image, its mirror image and so many crops: those of
        fake classes, and of the training rows in `shot_rows`
    novel : labels of classes that are to be new, refused if they trained the encoder; all but the
        base classes by default, and with () nothing is refused
    advance : called with the number of finished images and of all images, mixed ones included
    """
    base = sorted(base)
    seen = check_fair(images, encoder, base, novel)
    holdout = held_out(images.train, base, encoder)
    columns = _columns(images.train.labels, base)
    parents = np.flatnonzero((columns >= 0) & ~_kept_out(holdout, encoder, len(columns)))
    if pairs and len(parents):
        pairs, fake_images = pool_shape(np.bincount(columns[parents]), pairs, fake_images)
    shot_rows = np.asarray(shot_rows, dtype=np.int64)
    mixed = pairs * fake_images * (2 if shot_views else 1)
    total = len(images.train) + len(images.test) + mixed + len(shot_rows)
    done = 0

    def count(images: int) -> None:
        nonlocal done
        done += images
        advance(done, total)

    advance(0, total)
    x_train = embed(images.train, encoder, tta=tta, advance=count)
    x_test = (
        embed(images.test, encoder, tta=tta, advance=count)
        if len(images.test)
        else np.zeros((0, encoder.dim), dtype=np.float32)
    )
    fakes = None
    if pairs:
        pool = fake_pool(
            replace(images.train, labels=columns),
            parents,
            encoder,
            pairs=pairs,
            images=fake_images,
            tta=tta,
            crops=shot_views,
            seed=seed,
            advance=count,
        )
        fakes = replace(pool, pairs=np.array(base)[pool.pairs])
    x_shot = None
    if len(shot_rows):
        x_shot = embed(images.train, encoder, rows=shot_rows, crops=shot_views, advance=count)
    return Embeddings(
        x_train=x_train,
        y_train=images.train.labels,
        x_test=x_test,
        y_test=images.test.labels,
        fakes=fakes,
        x_shot=x_shot,
        shot_rows=None if x_shot is None else shot_rows,
        holdout=holdout,
        scale=encoder.scale,
        parts=encoder.parts,
        class_names=images.classes,
        names_train=images.train.names,
        names_test=images.test.names,
        image_test=len(images.train) + np.arange(len(images.test)),
        provenance={
            "encoder": encoder.name,
            "fingerprint": encoder.fingerprint,
            "transform": encoder.transform.as_dict(),
            "tta": tta,
            **({"shot_views": shot_views} if shot_views else {}),
            "dataset": images.name,
            "images": images.fingerprint,
            "about": encoder.about,
            "seen": list(seen),
        },
    )


def check_fair(
    images: ImageSet, encoder: Encoder, base: Sequence[int], novel: Sequence[int] | None
) -> tuple[str, ...]:
    """Classes that trained the encoder; raises where results would be too good.

    base, novel : as for `encode_set`
    """
    if not len(images.train):
        raise InputError(f"{images.name} has no training image to encode")
    check_unseen(images.test, encoder)
    seen = seen_classes(images, encoder)
    if novel is None:
        novel = sorted(set(range(len(images.classes))) - set(base))
    check_novel([images.classes[label] for label in novel], seen)
    return seen


def check_unseen(test: ImageSplit, encoder: Encoder) -> None:
    """Raise if images that trained the encoder are to test it."""
    if not encoder.trained:
        return
    digests = zip(test.names, test.digests(), strict=True)
    seen = [name for name, digest in digests if digest[:32] in encoder.trained]
    if seen:
        raise InputError(
            f"{len(seen)} test images or more, such as {shown(seen[0])}, trained the encoder "
            f"{encoder.name}: results would be too good. Keep test images in test/, or give `cala "
            "train` the same --test share"
        )


def held_out(train: ImageSplit, base: Sequence[int], encoder: Encoder) -> NDArray[np.bool_] | None:
    """(n,) base rows that the encoder was not trained on; None if that is not known."""
    is_base = np.isin(train.labels, list(base))
    if encoder.pretrained:
        return is_base
    if not encoder.holdout:
        return None
    rows = np.flatnonzero(is_base)
    held = np.zeros(len(train), dtype=bool)
    held[rows] = [digest in encoder.holdout for digest in train.digests(rows)]
    return held if held.any() else None


def _kept_out(holdout: NDArray[np.bool_] | None, encoder: Encoder, n: int) -> NDArray[np.bool_]:
    """Held-out images judge what fake classes teach, so they are not mixed into these."""
    if holdout is None or encoder.pretrained:
        return np.zeros(n, dtype=bool)
    return holdout


def _columns(labels: NDArray[np.int64], base: Sequence[int]) -> NDArray[np.int64]:
    """Place of each label among the base labels, -1 for others."""
    place = np.searchsorted(base, labels)
    place = np.minimum(place, len(base) - 1)
    return np.where(np.asarray(base)[place] == labels, place, -1)
