"""`fit`: from a folder of photos to a model on disk."""

from __future__ import annotations

import math
import os
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cala.core.fakes import FakePool, pool_shape
from cala.data.images import ImageSet, ImageSplit
from cala.data.sets import open_images
from cala.errors import BaseQueryWarning, FallbackWarning, InputError
from cala.estimator.growing import GrowingClassifier
from cala.files import counted, shown
from cala.heads import HEADS
from cala.heads.factory import split_name, takes_parts
from cala.model.knowledge import EncoderCard, Knowledge, check_name
from cala.model.labelled import labelled_files
from cala.model.learnable import digests_of, fresh_photos, journal_entry
from cala.model.model import Model, check_base_loss, check_reject
from cala.model.seen import SeenPhotos
from cala.store import Store

if TYPE_CHECKING:  # imported where photos are looked at: an encoder's engine takes seconds to load
    from cala.encoders.base import Encoder

DEFAULT_ENCODER = "efficientnet-lite0"
MIXED = 2000  # images at most by default: each costs as much as a photo
MIXED_PER_CLASS = 25
FEW_PHOTOS = 5

Advance = Callable[[int, int], None]


def fit(
    photos: str | os.PathLike[str] | ImageSet,
    out: str | os.PathLike[str],
    *,
    encoder: str | os.PathLike[str] | Encoder = DEFAULT_ENCODER,
    method: str = "auto",
    metric: str | None = None,
    objective: str = "accuracy",
    max_base_loss: float | None = None,
    expect: int | None = None,
    fakes: str | int = "image",
    tta: str = "none",
    reject: float = 0.05,
    seed: int = 0,
    skip_bad: bool = False,
    keep_thumbnails: bool = False,
    device: str = "cpu",
    advance: Advance = lambda done, total: None,
) -> Model:
    """Learn the classes of a folder (one folder of photos per class) and write a model.

    photos : the folder; or a set that has been opened, of which the training part is learned
    out : folder of the model, which must not be there yet
    expect : how many classes will be added later in all; by default two thirds of the first ones
    fakes : `image` mixes at most 2,000 images, a number at most so many, `feature` none: it mixes
        embeddings, which costs nothing and teaches less
    reject : share of genuine photos that `predict` may call unknown
    advance : called with the number of finished images and of all images, mixed ones included
    """
    wanted = _check(Path(out), method, max_base_loss, reject, fakes)
    found = photos if isinstance(photos, ImageSet) else _opened(Path(photos), skip_bad)
    store = Store(Path(out))
    notes = [*found.notes, *(f"left out {bad.name} ({bad.why})" for bad in found.skipped)]
    split, digests, again = _once(found)
    if again:
        notes.append(
            f"{counted(again, 'photo')} left out that {'is' if again == 1 else 'are'} there twice"
        )
    # Everything above is cheap; torch is imported from here on.
    from cala.encoders import load_encoder
    from cala.encoders.base import Encoder
    from cala.encoders.embed import embed
    from cala.encoders.fakes import fake_pool
    from cala.encoders.leakage import held_out
    from cala.encoders.registry import located

    coder = encoder if isinstance(encoder, Encoder) else load_encoder(encoder, device)
    pairs, each = _sizes(wanted, split)
    total, done = len(split) + pairs * each, 0

    def count(images: int) -> None:
        nonlocal done
        done += images
        advance(done, total)

    advance(0, total)
    features = embed(split, coder, tta=tta, advance=count)
    classifier = GrowingClassifier(
        method,
        metric=metric,
        scale="auto" if coder.scale is None else coder.scale,
        objective=objective,
        max_base_loss=max_base_loss,
        expected_novel=expect,
        random_state=seed,
    )
    pool: FakePool | None = None
    if pairs:
        rows = np.arange(len(split))
        pool = fake_pool(
            split, rows, coder, pairs=pairs, images=each, tta=tta, seed=seed, advance=count
        )
    names = np.array([check_name(name) for name in found.classes], dtype=str)[split.labels]
    holdout = held_out(split, range(len(found.classes)), coder)
    notes += _fit(classifier, features, names, pool, holdout)
    notes += _about_base(split)
    uri = coder.name if isinstance(encoder, Encoder) else located(encoder)
    ids = dict(zip(classifier.classes_.tolist(), classifier.head_.classes, strict=True))
    seen = SeenPhotos.empty().with_photos(digests, [ids[name] for name in names.tolist()])
    knowledge = Knowledge(
        classifier,
        seen,
        EncoderCard(uri, coder.fingerprint, coder.dim, tta),
        reject,
        str(fakes),
        tuple(notes),
    )
    knowledge = replace(knowledge, notes=(*notes, *_about_unknown(knowledge)))
    counts = dict(Counter(names.tolist()))
    entry = journal_entry("fit", counts, digests, again)
    return Model._created(store, knowledge, entry, coder, split if keep_thumbnails else None)


def _opened(folder: Path, skip_bad: bool) -> ImageSet:
    labelled_files(folder)  # says in plain words what is wrong with a folder
    return open_images(folder, "folder", on_bad="skip" if skip_bad else "raise")


def _check(
    out: Path, method: str, max_base_loss: float | None, reject: float, fakes: str | int
) -> int:
    """What can be known before a photo is looked at. How many images to mix at the most."""
    Store(out).check_free()
    check_reject(reject)
    check_base_loss(max_base_loss)
    if takes_parts(method) or HEADS[split_name(method)[0]].traits.changes_encoder:
        raise InputError(
            f"{method} works with the encoder that was trained for it, on the bench: choose "
            "another method for your own photos, such as cala-plus"
        )
    return mixed_images(fakes)


def mixed_images(fakes: str | int) -> int:
    """How many images to mix at the most; 0 for none."""
    if fakes == "image":
        return MIXED
    if fakes == "feature":
        return 0
    try:
        number = int(fakes)
    except ValueError:
        number = 0
    if number < 1:
        raise InputError(f"fakes is {fakes!r}: give image, feature, or how many images to mix")
    return number


def _sizes(images: int, split: ImageSplit) -> tuple[int, int]:
    """Fake classes and images of each, within a number of images."""
    if images == 0:
        return 0, 0
    each = min(MIXED_PER_CLASS, images)
    return pool_shape(np.bincount(split.labels), images // each, each)


def _once(found: ImageSet) -> tuple[ImageSplit, tuple[bytes, ...], int]:
    """The set's photos without repeats."""
    if len(found.classes) < 2:
        raise InputError(
            f"{shown(found.source)} has 1 class ('{shown(found.classes[0])}'): put at least two "
            "known classes there, each in a folder of its own"
        )
    folders: dict[str, str] = {}
    for folder in found.classes:
        other = folders.setdefault(check_name(folder), folder)
        if other != folder:
            raise InputError(
                f"the folders '{shown(other)}' and '{shown(folder)}' would be one class: put their "
                "photos together, or rename one of them"
            )
    split = found.train
    names = [found.classes[label] for label in split.labels]
    fresh = fresh_photos(split.names, digests_of(split), names, lambda digest: None)
    kept = split.take(fresh.rows)
    empty = set(range(len(found.classes))) - set(kept.labels.tolist())
    if empty:
        raise InputError(f"'{shown(found.classes[min(empty)])}' has no photo to learn from")
    return kept, fresh.digests, fresh.again


def _fit(
    classifier: GrowingClassifier,
    features: Any,
    names: Any,
    pool: FakePool | None,
    holdout: Any,
) -> list[str]:
    """Fit, and return what the fit had to say instead of warning about it."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        classifier.fit(
            features,
            names,
            fake=None if pool is None else pool.features,
            pairs=None if pool is None else pool.pairs,
            holdout=holdout,
        )
    notes = []
    for warning in said:
        if issubclass(warning.category, BaseQueryWarning):
            notes.append(
                "if the encoder was trained on these photos, known classes look safer than they "
                "are: train it with `cala train --holdout`"
            )
        elif issubclass(warning.category, FallbackWarning):
            notes.append(_plain(str(warning.message)))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return list(dict.fromkeys(notes))


def _plain(message: str) -> str:
    """What training had to say, for people who know photos and nothing else."""
    words = {
        "fake classes are too few": "too little to learn from for judging each new class by "
        "itself, so one shift serves all new classes; it takes at least 5 known classes, and "
        "--fakes not below 100",
        "the adapter is off": "with one photo per class nothing can be learned about how far to "
        "favour new classes; give at least two photos of each class",
        "nothing will be called unknown": "with one photo per class nothing will be called unknown",
        "fewer base rows than dimensions": "so few photos teach one shift for all new classes "
        "only; let images be mixed (--fakes image), or give more photos",
    }
    return next((plain for start, plain in words.items() if start in message), message)


def _about_unknown(knowledge: Knowledge) -> list[str]:
    """Where photos are too few for the rate that was asked for."""
    count = int(knowledge.classifier.rejection_.sizes[0])
    if count == 0 or knowledge.can_reject():
        return []
    least = 1 / (1 + count)
    return [
        f"{count} photos are too few to call anything unknown at --reject {knowledge.reject}: give "
        f"more photos, or use --reject {math.ceil(1000 * least + 1) / 1000}"
    ]


def _about_base(split: ImageSplit) -> list[str]:
    """What a user should know about a base that is small."""
    counts = np.bincount(split.labels)
    few = int((counts < FEW_PHOTOS).sum())
    if not few:
        return []
    return [
        f"{few} of {len(counts)} known classes have fewer than {FEW_PHOTOS} photos: what is "
        "learned about them is uncertain; add more with `cala add`"
    ]
