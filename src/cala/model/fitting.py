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
from cala.files import counted, reason, shown
from cala.heads import HEADS
from cala.heads.factory import split_name, takes_parts
from cala.model.model import Model, check_limits
from cala.model.photos import NewPhotos, digests_of, labelled_files, new_photos
from cala.model.thumbnails import write_thumbnails
from cala.model.trust import remember_trusted
from cala.model.version import EncoderCard, ModelVersion, Note, PhotoIndex, check_name
from cala.store import Store

if TYPE_CHECKING:  # imported where photos are encoded: an encoder's engine takes seconds to load
    from cala.encoders.base import Encoder

DEFAULT_ENCODER = "efficientnet-lite0"
MIXED = 2000  # images at most by default: each costs as much as a photo
MIXED_PER_CLASS = 25
FEW_PHOTOS = 5

Advance = Callable[[int, int], None]

#: What training had to say, for people who know photos and nothing else.
_HOLDOUT = (
    "if the encoder was trained on these photos, known classes look safer than they are: train it "
    "with `cala train --holdout`"
)
PLAIN = {
    "no_holdout": _HOLDOUT,
    "partial_holdout": _HOLDOUT,
    "few_fakes": "too little to learn from for judging each new class by itself, so one shift "
    "serves all new classes; it takes at least 5 known classes, and --fakes not below 100",
    "adapter_off": "with one photo per class nothing can be learned about how far to favour new "
    "classes; give at least two photos of each class",
    "nothing_unknown": "with one photo per class nothing will be called unknown",
    "few_rows": "so few photos teach one shift for all new classes only; let images be mixed "
    "(--fakes image), or give more photos",
}


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
    shot_views: int = 0,
    adapt: float = 0,
    reject: float = 0.05,
    seed: int = 0,
    skip_bad: bool = False,
    keep_thumbnails: bool = False,
    device: str = "cpu",
    advance: Advance = lambda done, total: None,
) -> Model:
    """Learn the classes of a folder (one folder of photos per class) and write a model.

    Parameters
    ----------
    photos : path-like or ImageSet
        The folder; or a set that has been opened, of which the training part is learned.
    out : path-like
        Folder of the model, which must not exist yet.
    encoder : str, path-like or Encoder, default="efficientnet-lite0"
        What turns photos into embeddings: a name, a URI or a file of `cala train`.
    method : str, default="auto"
        A method of `cala methods`.
    metric : {"cosine", "whitened"}, optional
        Instead of the method's own.
    objective : {"accuracy", "harmonic"}, default="accuracy"
        Most photos right, or known and new classes alike; see `Model.tune`.
    max_base_loss : float, optional
        Accuracy that known classes may lose, such as 0.01.
    expect : int, optional
        How many classes will be added later in all; by default two thirds of the first ones.
    fakes : {"image", "feature"} or int, default="image"
        "image" mixes at most 2,000 images, a number at most so many; "feature" mixes embeddings,
        which costs nothing and teaches less.
    tta : {"none", "flip"}, default="none"
        "flip" encodes the mirror image of each photo too.
    shot_views : int, default=0
        Photos of classes that are added later are averaged over themselves, their mirror images
        and so many crops; the mixed images learn what that means for new classes.
    adapt : float, default=0
        Minutes of processor time in which the encoder learns the known classes first. It is
        written into a folder beside the model, `NAME-encoder`, and used if held-out photos gain.
    reject : float, default=0.05
        Fraction of genuine photos that `predict` may call unknown.
    seed : int, default=0
        Of the mixed images and the adapter's training.
    skip_bad : bool, default=False
        Leave out photos that cannot be read.
    keep_thumbnails : bool, default=False
        Store small copies of the photos beside the model.
    device : str, default="cpu"
        Where the encoder runs.
    advance : callable, optional
        Called with the number of finished images and of all images, mixed ones included.

    Returns
    -------
    Model

    Examples
    --------
    >>> import cala
    >>> cala.fit("photos/", "birds").predict("new.jpg")  # doctest: +SKIP
    """
    store = Store(Path(out))
    wanted = _check(store, method, max_base_loss, reject, fakes, shot_views)
    found = photos if isinstance(photos, ImageSet) else _opened(Path(photos), skip_bad)
    split, new = _once(found)
    notes = [Note("files", text) for text in found.notes]
    notes += [Note("skipped", f"left out {bad.name} ({bad.why})") for bad in found.skipped]
    if new.duplicates:
        text = f"left out {counted(new.duplicates, 'duplicate photo')}"
        notes.append(Note("duplicates", text))
    # Everything above is cheap; torch is imported from here on.
    if adapt:
        from cala.model.adapting import STARTS
        from cala.model.adapting import adapt as adapted

        if encoder != STARTS:
            raise InputError(f"only {STARTS} can be adapted", "leave out --encoder", field="adapt")
        beside = store.path.resolve().with_name(f"{store.path.resolve().name}-encoder")
        made, said = adapted(found, beside, minutes=adapt, seed=seed, device=device)
        notes.append(Note("adapted", said))
        encoder = made or encoder
    from cala.encoders import load_encoder
    from cala.encoders.base import Encoder
    from cala.encoders.embed import embed
    from cala.encoders.fakes import encode_fakes
    from cala.encoders.leakage import held_out
    from cala.encoders.registry import located

    coder = encoder if isinstance(encoder, Encoder) else load_encoder(encoder, device)
    pairs, each = _sizes(wanted, split)
    total, done = len(split) + pairs * each * (2 if shot_views else 1), 0

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
        pool = encode_fakes(
            split,
            rows,
            coder,
            pairs=pairs,
            images=each,
            tta=tta,
            crops=shot_views,
            seed=seed,
            advance=count,
        )
    names = np.array([check_name(name) for name in found.classes], dtype=str)[split.labels]
    holdout = held_out(split, range(len(found.classes)), coder)
    notes += _fit(classifier, features, names, pool, holdout)
    notes += _about_base(split)
    uri = coder.name if isinstance(encoder, Encoder) else located(encoder)
    ids = dict(zip(classifier.classes_.tolist(), classifier.head_.classes, strict=True))
    index = PhotoIndex.empty().with_photos(new.digests, [ids[name] for name in names.tolist()])
    card = EncoderCard(uri, coder.fingerprint, coder.dim, tta, shot_views)
    first = ModelVersion(classifier, index, card, reject, str(fakes))
    first = replace(first, notes=(*notes, *_about_unknown(first)))
    store.create(first.to_content(), new.entry("fit", dict(Counter(names.tolist()))))
    remember_trusted(card)
    if keep_thumbnails:
        try:
            write_thumbnails(store.path, split)
        except OSError as error:
            raise InputError(
                f"{shown(out)} is made, but not all of its thumbnails ({reason(error)})"
            ) from error
    return Model(store.path, encoder=coder)


def _opened(folder: Path, skip_bad: bool) -> ImageSet:
    labelled_files(folder)  # says in plain words what is wrong with a folder
    return open_images(folder, "folder", on_bad="skip" if skip_bad else "raise")


def _check(
    store: Store,
    method: str,
    max_base_loss: float | None,
    reject: float,
    fakes: str | int,
    shot_views: int,
) -> int:
    """Check what can be known before a photo is read; return how many images to mix at most."""
    store.check_free()
    check_limits(reject=reject, max_base_loss=max_base_loss)
    if takes_parts(method) or HEADS[split_name(method)[0]].traits.changes_encoder:
        raise InputError(
            f"{method} works with the encoder that was trained for it, on the bench",
            "choose another method for your own photos, such as cala-plus",
            field="method",
        )
    if shot_views and fakes == "feature":
        raise InputError(
            "shot_views needs images to mix", "leave out --fakes feature", field="shot_views"
        )
    if fakes in ("image", "feature"):
        return MIXED if fakes == "image" else 0
    try:
        number = int(fakes)
    except ValueError:
        number = 0
    if number < 1:
        raise InputError(
            f"fakes is {fakes!r}", "use image, feature, or how many images to mix", field="fakes"
        )
    return number


def _sizes(images: int, split: ImageSplit) -> tuple[int, int]:
    """Fake classes and images of each, within a number of images."""
    if images == 0:
        return 0, 0
    each = min(MIXED_PER_CLASS, images)
    return pool_shape(np.bincount(split.labels), images // each, each)


def _once(found: ImageSet) -> tuple[ImageSplit, NewPhotos]:
    """The set's photos without duplicates."""
    if len(found.classes) < 2:
        raise InputError(
            f"{shown(found.source)} has 1 class ('{shown(found.classes[0])}')",
            "put at least two known classes there, each in a folder of its own",
            field="photos",
        )
    folders: dict[str, str] = {}
    for folder in found.classes:
        other = folders.setdefault(check_name(folder), folder)
        if other != folder:
            raise InputError(
                f"the folders '{shown(other)}' and '{shown(folder)}' would be one class",
                "put their photos together, or rename one of them",
                field="photos",
            )
    split = found.train
    names = [found.classes[label] for label in split.labels]
    new = new_photos(split.names, digests_of(split), names)
    kept = split.take(new.rows)
    empty = set(range(len(found.classes))) - set(kept.labels.tolist())
    if empty:
        raise InputError(f"'{shown(found.classes[min(empty)])}' has no photo to learn from")
    return kept, new


def _fit(
    classifier: GrowingClassifier, features: Any, names: Any, pool: FakePool | None, holdout: Any
) -> list[Note]:
    """Fit, and return what was smaller than asked for as notes; other warnings stay warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fakes: dict[str, Any] = {}
        if pool is not None:
            fakes = {"fake": pool.features, "pairs": pool.pairs, "fake_shots": pool.shots}
        classifier.fit(features, names, holdout=holdout, **fakes)
    notes = []
    for warning in caught:
        said = warning.message
        if isinstance(said, BaseQueryWarning | FallbackWarning):
            notes.append(Note(said.code, PLAIN.get(said.code, str(said))))
        else:
            warnings.warn_explicit(said, warning.category, warning.filename, warning.lineno)
    return list(dict.fromkeys(notes))


def _about_unknown(first: ModelVersion) -> list[Note]:
    """Where photos are too few for the rate that was asked for."""
    count = int(first.classifier.rejection_.sizes[0])
    if count == 0 or first.can_reject():
        return []
    least = math.ceil(1000 / (1 + count) + 1) / 1000
    text = (
        f"{count} photos are too few to call anything unknown at --reject {first.reject}: give "
        f"more photos, or use --reject {least}"
    )
    return [Note("few_for_unknown", text)]


def _about_base(split: ImageSplit) -> list[Note]:
    """What a user should know about a base that is small."""
    counts = np.bincount(split.labels)
    few = int((counts < FEW_PHOTOS).sum())
    text = (
        f"{few} of {len(counts)} known classes have fewer than {FEW_PHOTOS} photos: what is "
        "learned about them is uncertain; add more with `cala add`"
    )
    return [Note("few_photos", text)] if few else []
