"""`Model`: a folder on disk, its encoder, and what can be done with both."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cala.data.image_scan import scan
from cala.data.images import ImageSplit
from cala.errors import CalaError, InputError
from cala.files import shown
from cala.heads.checks import check_number
from cala.model.evaluation import Evaluation, evaluate
from cala.model.photos import NewPhotos, digests_of, gather, new_photos
from cala.model.prediction import Prediction, predict
from cala.model.thumbnails import drop_thumbnails, write_thumbnails
from cala.model.trust import check_trusted, remember_trusted
from cala.model.version import Features, ModelVersion, Note, check_name, plain_name
from cala.store import Content, JournalEntry, Store

if TYPE_CHECKING:  # imported where photos are encoded: an encoder's engine takes seconds to load
    from cala.encoders.base import Encoder

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Added:
    """What `add` did.

    photos : new photos per class; new : which classes are new; again : photos it had already
    alike : new classes whose name is almost that of another; skipped : photos left out
    """

    photos: dict[str, int]
    new: tuple[str, ...]
    again: int
    alike: dict[str, str] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    version: int = 0


class Model:
    """A model in a folder. Every change is a new version, written as a whole or not at all.

    Several processes may change a model at the same time: their changes follow each other.

    Parameters
    ----------
    path : path-like
        The folder that `fit` made.
    encoder : str, path-like or Encoder, optional
        Only if the encoder that the model names has moved; its fingerprint must match.
    device : str, default="cpu"
        Where the encoder runs.
    trust_encoder : str, optional
        A `torch:` encoder that the model may import, by the name it has there. It runs code;
        it is remembered once its fingerprint has matched.

    Attributes
    ----------
    classes : list of str
        Classes in order of arrival; the first `n_known` were there at `fit`.
    current : ModelVersion
        What the model knows.

    Examples
    --------
    >>> model = Model("birds")  # doctest: +SKIP
    >>> model.predict(["a.jpg", "b.jpg"])  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        encoder: str | os.PathLike[str] | Encoder | None = None,
        device: str = "cpu",
        trust_encoder: str | None = None,
    ) -> None:
        self.store = Store(Path(path))
        self.device, self._given, self._trusted = device, encoder, trust_encoder
        self._encoder: Encoder | None = None
        self.current = ModelVersion.from_content(self.store.read())

    def __repr__(self) -> str:
        return f"Model({str(self.path)!r}: {len(self.classes)} classes)"

    @property
    def path(self) -> Path:
        """The model's folder."""
        return self.store.path

    @property
    def version(self) -> int:
        """Number of the version on disk; every change counts it up."""
        return self.store.version()

    @property
    def classes(self) -> list[str]:
        """Classes in order of arrival; the first `n_known` were there at `fit`."""
        return self.current.names

    @property
    def n_known(self) -> int:
        """How many classes were there at `fit`."""
        return self.current.n_known

    @property
    def notes(self) -> tuple[Note, ...]:
        """What there was to say when it was made, such as that its photos are few."""
        return self.current.notes

    @property
    def encoder(self) -> Encoder:
        """The encoder, loaded when first needed and checked to be the model's own."""
        if self._encoder is None:
            self._encoder = self._load_encoder()
        return self._encoder

    def _load_encoder(self) -> Encoder:
        from cala.encoders import load_encoder
        from cala.encoders.base import Encoder

        card = self.current.encoder
        if self._given is None:
            check_trusted(card, self.path, self._trusted)
        given = card.uri if self._given is None else self._given
        try:
            found = given if isinstance(given, Encoder) else load_encoder(given, self.device)
        except InputError as error:
            raise InputError(
                f"the encoder {shown(card.uri)} of {shown(self.path)} cannot be loaded ({error})",
                "if it has moved, give its new place with --encoder (encoder= in Python)",
                field="encoder",
            ) from error
        if found.fingerprint != card.fingerprint:
            raise InputError(
                f"{shown(given)} is not the encoder that {shown(self.path)} was made with: its "
                f"fingerprint is {found.fingerprint[:12]}…, not {card.fingerprint[:12]}…",
                field="encoder",
                code="other_encoder",
            )
        if found.name == card.uri:
            remember_trusted(card)
        return found

    def reload(self) -> Model:
        """See what other processes have changed."""
        before, self.current = self.current, ModelVersion.from_content(self.store.read())
        if before.encoder.fingerprint != self.current.encoder.fingerprint:
            self._encoder = None  # the folder holds another model by now
        return self

    # Changes

    def add(
        self,
        images: Any,
        label: str | Sequence[str],
        *,
        skip_bad: bool = False,
        keep_thumbnails: bool = False,
        advance: Advance = lambda done: None,
    ) -> Added:
        """Learn photos of a new class, or more photos of one that is known.

        Parameters
        ----------
        images : path, folder, PIL image, array, or a list of these
            The photos.
        label : str or sequence of str
            Their class, or one for each.
        skip_bad : bool, default=False
            Leave out photos that cannot be read.
        keep_thumbnails : bool, default=False
            Store small copies beside the model.
        advance : callable, optional
            Called with the number of photos that have just been encoded.

        Returns
        -------
        Added
            Photos per class, which classes are new, what was there already.

        Examples
        --------
        >>> model.add(["1.jpg", "2.jpg"], "kingfisher").photos  # doctest: +SKIP
        {'kingfisher': 2}
        """
        split = gather(images)
        names = [check_name(name) for name in _one_each(label, len(split))]
        skipped: tuple[str, ...] = ()
        if skip_bad:
            split, names, skipped = _readable(split, names)
        digests = digests_of(split)
        features = self._embed(split, advance, self.current.encoder.shot_views)
        copies = (lambda: write_thumbnails(self.path, split)) if keep_thumbnails else None
        added = self.learn(split.names, digests, features, names, thumbnails=copies)
        return replace(added, skipped=skipped)

    def learn(
        self,
        files: Sequence[str],
        digests: Sequence[bytes],
        features: Features,
        names: Sequence[str],
        *,
        thumbnails: Callable[[], object] | None = None,
        about: Callable[[ModelVersion, Added], dict[str, Any]] = lambda after, added: {},
    ) -> Added:
        """`add` for photos whose embeddings by this model's encoder are there already.

        Parameters
        ----------
        files : sequence of str
            Names for messages.
        digests : sequence of bytes
            SHA-256 of each photo.
        features : (n, d) array
            Their embeddings.
        names : sequence of str
            The class of each.
        thumbnails : callable, optional
            Writes small copies once the change is certain.
        about : callable, optional
            What else the journal says; if it raises, nothing is changed.
        """
        card = self.current.encoder
        names = [check_name(name) for name in names]
        done: list[tuple[ModelVersion, Added]] = []

        def make(content: Content) -> tuple[Content, JournalEntry] | None:
            before = ModelVersion.from_content(content)
            before.encoder.check_same(card, self.path)
            after, added, new = _learned(before, files, features, names, digests)
            done.append((after, added))
            more = about(after, added)
            if not added.photos:
                return None
            if thumbnails is not None:
                thumbnails()
            entry = new.entry("add", added.photos)
            return after.to_content(), replace(entry, details={**entry.details, **more})

        try:
            version = self.store.change(make)
        except BaseException:
            if thumbnails is not None:
                self._drop_thumbnails()
            raise
        self.current, added = done[-1]
        return replace(added, version=version)

    def forget(self, label: str) -> Model:
        """Remove a class."""
        return self._change(lambda k: k.without(label), JournalEntry("forget", {"class": label}))

    def rename(self, old: str, new: str) -> Model:
        """Call a class by another name."""
        entry = JournalEntry("rename", {"from": old, "to": new})
        return self._change(lambda k: k.renamed(old, new), entry)

    def tune(
        self,
        *,
        objective: str | None = None,
        max_base_loss: float | None = None,
        delta: float | None = None,
        reject: float | None = None,
    ) -> Model:
        """Move the operating point or the rejection rate; no photo is needed for that.

        Parameters
        ----------
        objective : {"accuracy", "harmonic"}, optional
            Most photos right, or known and new classes alike.
        max_base_loss : float, optional
            Accuracy that known classes may lose, such as 0.01.
        delta : float, optional
            The shift of all new classes itself, such as one found on labelled photos.
        reject : float, optional
            Fraction of genuine photos that may be called unknown.
        """
        point = {"objective": objective, "max_base_loss": max_base_loss, "delta": delta}
        given = {**point, "reject": reject}
        details = {name: value for name, value in given.items() if value is not None}
        if not details:
            raise InputError(
                "nothing to change",
                "give objective, max_base_loss, delta or reject (--objective, --max-base-loss, "
                "--delta or --reject)",
            )
        check_limits(max_base_loss=max_base_loss, delta=delta, reject=reject)

        def tuned(current: ModelVersion) -> ModelVersion:
            classifier = current.classifier
            if any(value is not None for value in point.values()):
                classifier = copy.copy(classifier)
                classifier.objective = "accuracy" if objective is None else objective
                classifier.max_base_loss = max_base_loss
                classifier.set_operating_point(
                    classifier.objective, max_base_loss=max_base_loss, delta=delta
                )
            rate = current.reject if reject is None else reject
            return replace(current, classifier=classifier, reject=rate)

        return self._change(tuned, JournalEntry("tune", details))

    def undo(self) -> Model:
        """Go back by one change."""
        self.store.undo()
        return self.cleared()

    def redo(self) -> Model:
        """Take an undo back."""
        self.store.redo()
        return self.cleared()

    def _change(self, make: Callable[[ModelVersion], ModelVersion], entry: JournalEntry) -> Model:
        def changed(content: Content) -> tuple[Content, JournalEntry]:
            return make(ModelVersion.from_content(content)).to_content(), entry

        self.store.change(changed)
        return self.cleared()

    def cleared(self) -> Model:
        """Delete thumbnails that no version needs any more, and see the present version."""
        self._drop_thumbnails()
        return self.reload()

    def _drop_thumbnails(self) -> None:
        with suppress(CalaError, OSError):  # the change has happened, whatever comes of this
            drop_thumbnails(self.path, self.store.reachable("photos"))

    # Questions

    def embed(self, images: Any, advance: Advance = lambda done: None) -> Features:
        """Embeddings (n, d) of photos; each photo is encoded once, ever."""
        return self._embed(gather(images), advance)

    def _embed(self, split: ImageSplit, advance: Advance, crops: int = 0) -> Features:
        from cala.encoders.embed import embed

        tta = self.current.encoder.tta
        return embed(split, self.encoder, tta=tta, crops=crops, advance=advance)

    def predict(
        self, images: Any, *, unknown: str = "on", reject: float | None = None
    ) -> list[str]:
        """The class of each photo, or "unknown"; `explain` says more about each.

        Examples
        --------
        >>> model.predict("garden/")  # doctest: +SKIP
        ['robin', 'unknown']
        """
        return [answer.label for answer in self.explain(images, unknown=unknown, reject=reject)]

    def explain(
        self,
        images: Any,
        *,
        top: int = 3,
        unknown: str = "on",
        reject: float | None = None,
        why: bool = False,
        advance: Advance = lambda done: None,
    ) -> list[Prediction]:
        """Classes of each photo with their probabilities, and why.

        Parameters
        ----------
        images : path, folder, PIL image, array, or a list of these
            The photos.
        top : int, default=3
            How many classes to name.
        unknown : {"on", "report", "off"}, default="on"
            Answer "unknown" if no class fits, flag it but still answer, or do not check.
        reject : float, optional
            Fraction of genuine photos that may be called unknown, instead of the model's own.
        why : bool, default=False
            Add the closest classes and the answer without the adapter.
        advance : callable, optional
            Called with the number of photos that have just been encoded.

        Returns
        -------
        list of Prediction
            One for each photo.

        Examples
        --------
        >>> [(a.label, a.probability) for a in model.explain("garden/")]  # doctest: +SKIP
        [('robin', 0.98), ('unknown', 0.51)]
        """
        check_limits(reject=reject)
        split = gather(images)
        features = self._embed(split, advance)
        return predict(
            self.current, features, split.names, top=top, unknown=unknown, reject=reject, why=why
        )

    def evaluate(
        self,
        images: Any,
        labels: str | Sequence[str],
        *,
        reject: float | None = None,
        advance: Advance = lambda done: None,
    ) -> Evaluation:
        """How well it does on labelled photos.

        Parameters
        ----------
        images : path, folder, PIL image, array, or a list of these
            The photos.
        labels : str or sequence of str
            Their class, or one for each; photos of classes that the model does not know test
            whether it calls them unknown.
        reject : float, optional
            Fraction of genuine photos that may be called unknown, instead of the model's own.
        advance : callable, optional
            Called with the number of photos that have just been encoded.

        Returns
        -------
        Evaluation
            Accuracies, mistakes, and what calling photos unknown costs and brings.
        """
        check_limits(reject=reject)
        split = gather(images)
        labels = [plain_name(label) for label in _one_each(labels, len(split))]
        features = self._embed(split, advance)
        learned = self.current.photos.owners()
        again = sum(digest in learned for digest in digests_of(split))
        return evaluate(self.current, features, labels, reject=reject, learned_from=again)

    def history(self) -> list[dict[str, Any]]:
        """The journal, oldest change first."""
        return self.store.journal()


def load(
    path: str | os.PathLike[str],
    *,
    encoder: str | os.PathLike[str] | Encoder | None = None,
    device: str = "cpu",
    trust_encoder: str | None = None,
) -> Model:
    """Open the model in a folder.

    Parameters
    ----------
    path : path-like
        The folder that `fit` made.
    encoder : str, path-like or Encoder, optional
        Only if the encoder that the model names has moved.
    device : str, default="cpu"
        Where the encoder runs.
    trust_encoder : str, optional
        A `torch:` encoder that the model may import: give the name that it has there.

    Returns
    -------
    Model

    Examples
    --------
    >>> import cala
    >>> cala.load("birds").predict("garden/")  # doctest: +SKIP
    """
    return Model(path, encoder=encoder, device=device, trust_encoder=trust_encoder)


#: Limits of options; a fraction is below 1, since `1` is almost always meant as 1 %.
LIMITS: dict[str, dict[str, Any]] = {
    "max_base_loss": {"low": 0, "high": 1, "below": True, "example": 0.01},
    "reject": {"low": 0, "high": 1, "below": True, "example": 0.05},
    "delta": {"low": -1000, "high": 1000},
}


def check_limits(**options: Any) -> None:
    """Check options that are given (not None) against `LIMITS`."""
    for name, value in options.items():
        if value is not None:
            check_number(name, value, **LIMITS[name])


def _one_each(label: Any, count: int) -> list[str]:
    """A label for each of `count` photos, from one for all or one for each."""
    if isinstance(label, str):
        return [label] * count
    try:
        labels = list(label)
    except TypeError:
        raise InputError(
            f"the label is {label!r}", "give a name, or one for each photo", field="label"
        ) from None
    if len(labels) != count:
        raise InputError(
            f"there are {len(labels)} labels for {count} photos", "give one for each", field="label"
        )
    return labels


def _learned(
    before: ModelVersion,
    files: Sequence[str],
    features: Features,
    names: Sequence[str],
    digests: Sequence[bytes],
) -> tuple[ModelVersion, Added, NewPhotos]:
    """The version after learning photos, what was added, and which photos were new."""
    ids = dict(zip(before.classifier.head_.classes, before.names, strict=True))
    owners = before.photos.owners()
    found = new_photos(files, digests, names, lambda digest: ids.get(owners.get(digest, -1)))
    counts = dict(Counter(found.names))
    new = tuple(name for name in counts if name not in before.names)
    alike = {name: other for name in new if (other := before.alike(name, 0.95)) is not None}
    added = Added(counts, new, found.duplicates, alike)
    if not counts:
        return before, added, found
    after = before.with_photos(features[found.rows], found.names, found.digests)
    return after, added, found


def _readable(split: ImageSplit, names: list[str]) -> tuple[ImageSplit, list[str], tuple[str, ...]]:
    """Without the files that cannot be decoded, and what is wrong with these."""
    paths = getattr(split.pixels, "paths", None)
    if paths is None:
        return split, names, ()
    faults = scan(paths).faults
    good = [row for row, why in enumerate(faults) if not why]
    bad = tuple(f"{shown(n)} ({why})" for n, why in zip(split.names, faults, strict=True) if why)
    if not good:
        raise InputError(f"none of the photos can be read, such as {bad[0]}")
    return split.take(good), [names[row] for row in good], bad
