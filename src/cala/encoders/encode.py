"""A whole image set -> embeddings with everything that a protocol needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cala.core.fakes import FakePool, pool_shape
from cala.data.embeddings import Embeddings
from cala.data.images import ImageSet, ImageSplit
from cala.data.progress import Advance
from cala.encoders.base import Encoder
from cala.encoders.embed import embed
from cala.encoders.fakes import FAKE_IMAGES, FAKE_PAIRS, encode_fakes
from cala.encoders.leakage import check_fair, held_out


def counter(advance: Advance, total: int, done: int = 0) -> Callable[[int], None]:
    """Return a function that adds up the images that were just finished, and reports the sum."""

    def count(images: int) -> None:
        nonlocal done
        done += images
        advance(done, total)

    count(0)
    return count


def plan_fakes(
    train: ImageSplit,
    base: Sequence[int],
    encoder: Encoder,
    holdout: NDArray[np.bool_] | None,
    pairs: int,
    images: int,
) -> tuple[NDArray[np.int64], int, int]:
    """Return rows to mix, the number of fake classes (0 without such rows) and images of each.

    Held-out images judge what fake classes teach, so they are not mixed into these.
    """
    chosen = np.isin(train.labels, list(base))
    if holdout is not None and not encoder.pretrained:
        chosen &= ~holdout
    rows = np.flatnonzero(chosen)
    if not pairs or not len(rows):
        return rows, 0, images
    counts = np.bincount(np.searchsorted(sorted(base), train.labels[rows]))
    return rows, *pool_shape(counts, pairs, images)


def base_fakes(
    train: ImageSplit,
    base: Sequence[int],
    rows: NDArray[np.int64],
    encoder: Encoder,
    **options: Any,
) -> FakePool:
    """`encode_fakes` of a set whose base labels are any numbers; pairs are these labels."""
    labels = np.array(sorted(base))
    columns = np.searchsorted(labels, train.labels)
    pool = encode_fakes(replace(train, labels=columns), rows, encoder, **options)
    return replace(pool, pairs=labels[pool.pairs])


def provenance_of(
    images: ImageSet, encoder: Encoder, tta: str, seen: Sequence[str], content: str
) -> dict[str, Any]:
    """Describe where embeddings come from; `content` identifies the images."""
    return {
        "encoder": encoder.name,
        "fingerprint": encoder.fingerprint,
        "transform": encoder.transform.as_dict(),
        "tta": tta,
        "dataset": images.name,
        "images": content,
        "about": encoder.about,
        "seen": list(seen),
    }


def encode_set(
    images: ImageSet,
    encoder: Encoder,
    *,
    base: Sequence[int],
    novel: Sequence[int] | None = None,
    tta: str = "none",
    pairs: int = FAKE_PAIRS,
    fake_images: int = FAKE_IMAGES,
    shot_views: int = 0,
    shot_rows: ArrayLike = (),
    seed: int = 0,
    advance: Advance = lambda done, total: None,
) -> Embeddings:
    """Encode both parts of a set, and fake classes mixed from its base classes.

    Parameters
    ----------
    images : ImageSet
        The set.
    encoder : Encoder
        The encoder.
    base : sequence of int
        Labels of the base classes.
    novel : sequence of int, optional
        Labels of classes that arrive later, refused if they trained the encoder. All but the base
        classes by default; with () nothing is refused.
    tta : {"none", "flip"}, default="none"
        `flip` averages the embeddings of an image and of its mirror image.
    pairs : int
        Number of fake classes, 0 for none.
    fake_images : int
        Images of each fake class. If half of the base classes have fewer images than that, there
        are more fake classes with fewer images each.
    shot_views : int, default=0
        Shots are averaged over the image, its mirror image and so many crops: those of fake
        classes, and of `shot_rows`.
    shot_rows : array of int, optional
        Training rows that may become shots.
    seed : int, default=0
        Decides what is mixed.
    advance : callable, optional
        Called with the number of finished images and of all images, mixed ones included.

    Returns
    -------
    Embeddings
        Embeddings, labels, names, fake classes, held-out rows and provenance.
    """
    seen = check_fair(images, encoder, base, novel)
    holdout = held_out(images.train, base, encoder)
    rows, pairs, each = plan_fakes(images.train, base, encoder, holdout, pairs, fake_images)
    shot_rows = np.asarray(shot_rows, dtype=np.int64)
    mixed = pairs * each * (2 if shot_views else 1)
    count = counter(advance, len(images.train) + len(images.test) + mixed + len(shot_rows))
    x_train = embed(images.train, encoder, tta=tta, advance=count)
    x_test = embed(images.test, encoder, tta=tta, advance=count)
    options = {"pairs": pairs, "images": each, "tta": tta, "crops": shot_views, "seed": seed}
    options["advance"] = count
    provenance = provenance_of(images, encoder, tta, seen, images.fingerprint)
    if shot_views:
        provenance["shot_views"] = shot_views
    x_shot = None
    if len(shot_rows):
        x_shot = embed(images.train, encoder, rows=shot_rows, crops=shot_views, advance=count)
    return Embeddings(
        x_train=x_train,
        y_train=images.train.labels,
        x_test=x_test,
        y_test=images.test.labels,
        fakes=base_fakes(images.train, base, rows, encoder, **options) if pairs else None,
        x_shot=x_shot,
        shot_rows=None if x_shot is None else shot_rows,
        holdout=holdout,
        scale=encoder.scale,
        parts=encoder.parts,
        class_names=images.classes,
        names_train=images.train.names,
        names_test=images.test.names,
        image_test=len(images.train) + np.arange(len(images.test)),
        provenance=provenance,
    )
