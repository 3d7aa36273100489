"""`fit`: from a folder of photos to a model on disk."""

from __future__ import annotations

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
from cala.encoders.registry import ENGINES
from cala.errors import BaseQueryWarning, FallbackWarning, InputError
from cala.estimator.growing import GrowingClassifier
from cala.files import counted, reason, shown
from cala.heads import HEADS
from cala.heads.checks import check_number
from cala.heads.factory import split_name, takes_parts
from cala.model.kept import MOST_KEPT, KeptPhotos
from cala.model.model import Model, check_limits
from cala.model.notebook import fit_progress
from cala.model.photos import (
    NewPhotos,
    check_none_left_out,
    digests_of,
    labelled_files,
    new_photos,
)
from cala.model.thumbnails import write_thumbnails
from cala.model.trust import remember_trusted
from cala.model.version import (
    MOST_SHOT_VIEWS,
    EncoderCard,
    ModelVersion,
    Note,
    PhotoIndex,
    check_name,
)
from cala.registry import check_choice
from cala.store import Store

if TYPE_CHECKING:  # imported where photos are encoded: an encoder's engine takes seconds to load
    from cala.encoders.base import Encoder

DEFAULT_ENCODER = "efficientnet-lite0"
MIXED = 2000  # images at most by default: each costs as much as a photo
MIXED_PER_CLASS = 25
FEW_PHOTOS = 5

#: How far photos of a class scatter, so that ten photos are enough to call others unknown
#: (`benchmarks/unknowns.py --spread`); a number of the encoder, of no photo in particular.
SPREADS = {"efficientnet-lite0": 0.097}

Advance = Callable[[int, int], None]

#: What training had to say, for people who know photos and nothing else.
_HOLDOUT = (
    "if the encoder was trained on these photos, known classes look safer than they are: train it "
    "with `cala train --holdout`"
)
PLAIN = {
    "no_holdout": _HOLDOUT,
    "partial_holdout": _HOLDOUT,
    "few_fakes": "too little to learn from for judging each new class by itself, so all new "
    "classes are favoured alike; it takes at least 5 known classes, and --fakes not below 100",
    "adapter_off": "with one photo per class nothing can be learned about how far to favour new "
    "classes; give at least two photos of each class",
    "nothing_unknown": "photos are too few to call anything unknown: give at least two per class",
    "few_rows": "so few photos teach only how far to favour all new classes alike; let images be "
    "mixed (--fakes image), or give more photos",
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
    strict: bool = False,
    keep_thumbnails: bool = True,
    device: str = "cpu",
    engine: str = "auto",
    advance: Advance | None = None,
    notify: Callable[[Note], None] = lambda note: None,
) -> Model:
    """Learn the classes of a folder (one folder of photos per class) and write a model.

    Parameters
    ----------
    photos : path-like or ImageSet
        The folder; or a set that has been opened, of which the training part is learned.
    out : path-like
        Folder of the model, which must not exist yet.
    encoder : str, path-like or Encoder, default="efficientnet-lite0"
        A name that `cala encoders` lists, a URI, or a file that `cala train` wrote.
    method : str, default="auto"
        One that `cala methods` lists.
    metric : {"cosine", "whitened"}, optional
        Default: the method's.
    objective : {"accuracy", "harmonic"}, default="accuracy"
        Most photos right, or known and new classes alike; see `Model.tune`.
    max_base_loss : float, optional
        Accuracy that known classes may lose, such as 0.01.
    expect : int, optional
        How many classes will be added later; default: two thirds as many as there are now.
    fakes : {"image", "feature"} or int, default="image"
        What the rehearsal of new classes uses: "image" mixes up to 2,000 images, a number up to
        that many; "feature" mixes embeddings instead, which is faster and less accurate.
    tta : {"none", "flip"}, default="none"
        "flip" encodes the mirror image of each photo too.
    shot_views : int, default=0
        If above 0, each photo of a class that is added later is averaged with its mirror image and
        this many random crops. Needs fake classes mixed from images.
    adapt : float, default=0
        Minutes of processor time for adapting the encoder to the known classes first. The adapted
        encoder is written beside the model, as `NAME-encoder`, and used only if it improves on
        held-out photos.
    reject : float, default=0.05
        Fraction of photos of known classes that `predict` may call unknown.
    seed : int, default=0
        Seed for everything random in training.
    skip_bad : bool, default=False
        Leave out photos that cannot be read.
    strict : bool, default=False
        Raise if anything is left out, such as a video or a photo that cannot be read.
    keep_thumbnails : bool, default=True
        Store small copies (160 pixels) of the photos in the model's folder.
    device : str, default="cpu"
        Where the encoder runs.
    engine : {"auto", "torch", "onnxruntime", "openvino"}, default="auto"
        What runs the encoder, see `cala.load_encoder`.
    advance : callable, optional
        Called with the number of finished images and of all images, mixed ones included. Default:
        a notebook shows a bar.
    notify : callable, optional
        Called before the work starts with what there is to say of the photos; `Model.notes` has
        that too.

    Returns
    -------
    Model

    Examples
    --------
    >>> import cala
    >>> cala.fit("photos/", "birds").predict("new.jpg")  # doctest: +SKIP
    """
    store = Store(Path(out))
    check_choice("engine", engine, ENGINES)
    wanted = _check(store, method, max_base_loss, reject, fakes, shot_views)
    found = photos if isinstance(photos, ImageSet) else _opened(Path(photos), skip_bad)
    if strict:
        check_none_left_out(found.left_out, len(found.train) + len(found.test))
        _check_none_skipped(found)
    notes = [Note("files", text) for text in found.notes]
    notes += [Note("skipped", f"left out {bad.name} ({bad.why})") for bad in found.skipped]
    for note in notes:
        notify(note)
    split, new = _once(found)
    if new.duplicates:
        text = f"left out {counted(new.duplicates, 'duplicate photo')}"
        notes.append(Note("duplicates", text))
        notify(notes[-1])
    # Everything above is cheap.
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

    coder = (
        encoder if isinstance(encoder, Encoder) else load_encoder(encoder, device, engine=engine)
    )
    pairs, each = _sizes(wanted, split)
    total, done = len(split) + pairs * each * (2 if shot_views else 1), 0

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
    with fit_progress(advance) as tell:

        def count(images: int) -> None:
            nonlocal done
            done += images
            tell(done, total)

        tell(0, total)
        features = embed(split, coder, tta=tta, advance=count)
        if pairs:
            how = {"pairs": pairs, "images": each, "crops": shot_views}
            rows = np.arange(len(split))
            pool = encode_fakes(split, rows, coder, tta=tta, seed=seed, advance=count, **how)
    names = np.array([check_name(name) for name in found.classes], dtype=str)[split.labels]
    holdout = held_out(split, range(len(found.classes)), coder)
    notes += fit_classifier(classifier, features, names, pool, holdout)
    classifier.expect_spread(SPREADS.get(coder.name, 0.0))
    notes += about_base(np.bincount(split.labels))
    uri = coder.name if isinstance(encoder, Encoder) else located(encoder)
    ids = dict(zip(classifier.classes_.tolist(), classifier.head_.classes, strict=True))
    index = PhotoIndex.empty().with_photos(new.digests, [ids[name] for name in names.tolist()])
    card = EncoderCard(uri, coder.fingerprint, coder.dim, tta, shot_views)
    kept = KeptPhotos.empty(coder.dim)
    if len(split) <= MOST_KEPT:
        kept = kept.with_photos(new.digests, features, split.names)
    first = ModelVersion(classifier, index, card, reject, str(fakes), kept=kept)
    first = replace(first, notes=tuple(notes), fitted=len(split))
    store.create(first.to_content(), new.entry("fit", dict(Counter(names.tolist()))))
    remember_trusted(card)
    if keep_thumbnails:
        try:
            write_thumbnails(store.path, split)
        except OSError as error:
            raise InputError(
                f"{shown(out)} was created, but not all of its thumbnails were ({reason(error)})"
            ) from error
    return Model(store.path, encoder=coder)


def _opened(folder: Path, skip_bad: bool) -> ImageSet:
    paths, _ = labelled_files(folder)  # says in plain words what is wrong with a folder
    if paths[0].parent == folder:
        raise InputError(
            f"{shown(folder)} holds photos, not folders of photos",
            f"make a folder in it for each class, such as {shown(folder / 'robin')} and "
            f"{shown(folder / 'heron')}, and move the photos there; if they all show one class, "
            "give the folder above",
            field="photos",
            code="one_class",
        )
    return open_images(folder, "folder", on_bad="skip" if skip_bad else "raise")


def _check_none_skipped(found: ImageSet) -> None:
    if found.skipped:
        bad, count = found.skipped[0], counted(len(found.skipped), "photo")
        raise InputError(
            f"{count} cannot be read, such as {bad.name} ({bad.why})",
            "fix or remove them, or run it without --strict (strict=True in Python)",
            field="strict",
            code="left_out",
        )


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
            f"{method} needs an encoder that was trained for it",
            "use it with `cala run`, or choose another method, such as cala-plus",
            field="method",
        )
    check_number("shot_views", shot_views, 0, MOST_SHOT_VIEWS, whole=True)
    if shot_views and fakes == "feature":
        detail = "--shot-views needs images that are mixed from your photos"
        raise InputError(detail, "omit --fakes feature", field="shot_views")
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
            code="one_class",
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


def fit_classifier(
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


def about_base(counts: Any) -> list[Note]:
    """What a user should know about classes with few photos; counts : (C,) photos of each."""
    few = int((counts < FEW_PHOTOS).sum())
    text = (
        f"{few} of {len(counts)} known classes have fewer than {FEW_PHOTOS} photos: what is "
        "learned about them is uncertain; add more with `cala add`"
    )
    return [Note("few_photos", text)] if few else []
