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

import numpy as np
from numpy.typing import NDArray

from cala.data.image_scan import scan
from cala.data.images import ImageSplit
from cala.encoders.registry import ENGINES
from cala.errors import CalaError, InputError
from cala.files import shown
from cala.heads.checks import check_number
from cala.model.estimate import CurvePoint, Estimate, estimate, learning_curve
from cala.model.evaluation import Evaluation, evaluate
from cala.model.notebook import count_progress, model_html
from cala.model.photos import NewPhotos, digests_of, gather, labelled, new_photos
from cala.model.prediction import Prediction, predict
from cala.model.thumbnails import drop_thumbnails, has_thumbnails, write_thumbnails
from cala.model.trust import check_trusted, remember_trusted
from cala.model.version import Features, ModelVersion, Note, check_name, plain_name
from cala.registry import check_choice
from cala.store import Content, JournalEntry, Store

if TYPE_CHECKING:  # imported where photos are encoded: an encoder's engine takes seconds to load
    from cala.encoders.base import Encoder

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Added:
    """What `add` did.

    photos : new photos per class; new : which classes are new; again : photos it had already
    alike : new classes whose name is almost that of another; skipped : photos left out
    renamed : former names that were given, and the classes that have the photos now
    """

    photos: dict[str, int]
    new: tuple[str, ...]
    again: int
    alike: dict[str, str] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    version: int = 0
    renamed: dict[str, str] = field(default_factory=dict)


class Model:
    """A model in a folder. Every change is a new version, written as a whole or not at all.

    Several processes may change a model at the same time: changes are applied one after the
    other.

    Parameters
    ----------
    path : path-like
        The folder that `fit` made, or `hf://user/name[@revision]`, a model of the Hugging Face hub.
    encoder : str, path-like or Encoder, optional
        Only if the encoder that the model names has moved; its fingerprint must match.
    device : str, default="cpu"
        Where the encoder runs.
    engine : {"auto", "torch", "onnxruntime", "openvino"}, default="auto"
        What runs the encoder, see `cala.load_encoder`.
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
        engine: str = "auto",
        trust_encoder: str | None = None,
    ) -> None:
        check_choice("engine", engine, ENGINES)
        self.store = _store(Path(path))
        self.device, self.engine = device, engine
        self._given, self._trusted = encoder, trust_encoder
        self._encoder: Encoder | None = None
        self.current = ModelVersion.from_content(self.store.read())

    def __repr__(self) -> str:
        return f"Model({str(self.path)!r}: {len(self.classes)} classes)"

    def _repr_html_(self) -> str:
        return model_html(self.path, self.current)

    @property
    def path(self) -> Path:
        """The model's folder."""
        return self.store.path

    @property
    def version(self) -> int:
        """Number of the version on disk; every change adds 1."""
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
        """Warnings from when the model was made, such as that it has few photos."""
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
            found = given
            if not isinstance(found, Encoder):
                known = card.fingerprint if self._given is None else None
                how: dict[str, Any] = {"engine": self.engine, "fingerprint": known}
                found = load_encoder(found, self.device, **how)
        except InputError as error:
            if error.code == "missing_extra":
                raise  # it is where it was, and what to install is the fix
            raise InputError(
                f"the encoder {shown(card.uri)} of {shown(self.path)} cannot be loaded ({error})",
                "if it has moved, give its new place with --encoder (encoder= in Python)",
                field="encoder",
                code="no_encoder",
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
        """Read changes that other processes have made."""
        before, self.current = self.current, ModelVersion.from_content(self.store.read())
        if before.encoder.fingerprint != self.current.encoder.fingerprint:
            self._encoder = None  # the folder holds another model by now
        return self

    # Changes

    def add(
        self,
        images: Any,
        label: str | Sequence[str] | None = None,
        *,
        skip_bad: bool = False,
        strict: bool = False,
        keep_thumbnails: bool | None = None,
        advance: Advance | None = None,
    ) -> Added:
        """Learn photos of a new class, or more photos of one that is known.

        Parameters
        ----------
        images : path, folder, PIL image, array, or a list of these
            The photos; without `label`, a folder with one folder of photos per class.
        label : str or sequence of str, optional
            Their class, or one for each.
        skip_bad : bool, default=False
            Leave out photos that cannot be read.
        strict : bool, default=False
            Raise if anything is left out, such as a video or a photo that cannot be read.
        keep_thumbnails : bool, optional
            Store small copies in the model's folder. Default: if it has some.
        advance : callable, optional
            Called with the number of photos that have just been encoded.

        Returns
        -------
        Added
            Photos per class, which classes are new, and how many photos were known already.

        Examples
        --------
        >>> model.add(["1.jpg", "2.jpg"], "kingfisher").photos  # doctest: +SKIP
        {'kingfisher': 2}
        >>> model.add("photos/new").photos  # doctest: +SKIP
        {'dipper': 5, 'heron': 5}
        """
        if label is None:
            images, label = labelled(images, strict=strict)
        split = gather(images, strict=strict)
        names = [check_name(name) for name in _one_each(label, len(split))]
        if keep_thumbnails is None:
            keep_thumbnails = has_thumbnails(self.path)
        skipped: tuple[str, ...] = ()
        if skip_bad and not strict:
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
        move: bool = False,
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
        move : bool, default=False
            Take photos that another class has learned out of it, instead of refusing them.
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
            if move:
                before = _freed(before, digests, names)
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

    def reject(
        self,
        images: Any,
        *,
        strict: bool = False,
        advance: Advance | None = None,
    ) -> Model:
        """Learn photos that show none of the classes, so that such photos are called unknown.

        Parameters
        ----------
        images : path, folder, PIL image, array, or a list of these
            The photos.
        strict : bool, default=False
            Raise if anything is left out, such as a video or a photo that cannot be read.
        advance : callable, optional
            Called with the number of photos that have just been encoded.
        """
        return self.reject_rows(self._embed(gather(images, strict=strict), advance))

    def reject_rows(self, features: Features) -> Model:
        """`reject` for photos whose embeddings (n, d) by this model's encoder are there already."""
        card = self.current.encoder

        def rejecting(content: Content) -> tuple[Content, JournalEntry] | None:
            current = ModelVersion.from_content(content)
            current.encoder.check_same(card, self.path)
            current.check_not_learned(features)
            classifier = copy.copy(current.classifier).reject(features)
            more = len(classifier.rejection_.rejected) - len(current.classifier.rejection_.rejected)
            if not more:
                return None  # all of them were rejected before
            after = replace(current, classifier=classifier)
            return after.to_content(), JournalEntry("reject", {"photos": more})

        self.store.change(rejecting)
        return self.cleared()

    def forget(self, label: str, *, photo: str | None = None) -> Model:
        """Remove a class, or one photo from it.

        Parameters
        ----------
        label : str
            The class.
        photo : str, optional
            The name of a photo's file, with its folder or without, or the beginning of its SHA-256.
            What `fit` learned from all photos together stays.
        """
        if photo is None:
            entry = JournalEntry("forget", {"class": label})
            return self._change(lambda k: k.without(label), entry)

        def changed(content: Content) -> tuple[Content, JournalEntry]:
            after, name, digest = ModelVersion.from_content(content).without_photo(label, photo)
            details = {"class": label, "photo": name, "sha256": [digest.hex()]}
            return after.to_content(), JournalEntry("forget", details)

        self.store.change(changed)
        return self.cleared()

    def merge(self, old: str, into: str) -> Model:
        """Move the photos of one class to another; `add` and `evaluate` still know its name."""
        entry = JournalEntry("merge", {"from": old, "to": into})
        return self._change(lambda k: k.merged(old, into), entry)

    def rename(self, old: str, new: str) -> Model:
        """Call a class by another name; `add` and `evaluate` still know the former one."""
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
        """Favour known or new classes, or change how many photos are called unknown.

        Parameters
        ----------
        objective : {"accuracy", "harmonic"}, optional
            Most photos right, or known and new classes alike.
        max_base_loss : float, optional
            Accuracy that known classes may lose, such as 0.01.
        delta : float, optional
            How much to favour all new classes, such as a value found on labelled photos.
        reject : float, optional
            Fraction of photos of known classes that may be called unknown.
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

    def refit(self) -> Model:
        """Learn again from all photos, as if `fit` had been given them all; no photo is needed.

        It pays after many additions: metric, corrections and the threshold for "unknown" rest on
        the photos of `fit` alone. All classes are known classes from then on, in the order of
        their names.

        Examples
        --------
        >>> model.refit().estimate().share()  # doctest: +SKIP
        Share(right=37, photos=40)
        """
        from cala.model.refitting import refitted

        encoder, card = self.encoder, self.current.encoder

        def changed(content: Content) -> tuple[Content, JournalEntry]:
            before = ModelVersion.from_content(content)
            before.encoder.check_same(card, self.path)
            after = refitted(before, encoder)
            details = {"classes": len(after.names), "photos": len(after.photos)}
            return after.to_content(), JournalEntry("refit", details)

        self.store.change(changed)
        return self.cleared()

    def undo(self) -> Model:
        """Undo the last change."""
        self.store.undo()
        return self.cleared()

    def redo(self) -> Model:
        """Reverse the last undo."""
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
        # The change has happened, whatever comes of this; a version of others' may lack a field.
        with suppress(CalaError, OSError, KeyError):
            drop_thumbnails(self.path, self.store.reachable("photos"))

    # Questions

    def embed(self, images: Any, advance: Advance | None = None) -> Features:
        """Embeddings (n, d) of photos; those encoded before come from the cache."""
        return self._embed(gather(images), advance)

    def _embed(self, split: ImageSplit, advance: Advance | None, crops: int = 0) -> Features:
        from cala.encoders.embed import embed

        tta = self.current.encoder.tta
        with count_progress(len(split), advance) as count:
            return embed(split, self.encoder, tta=tta, crops=crops, advance=count)

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

    def predict_proba(self, images: Any) -> NDArray[np.float64]:
        """How likely each class is for each photo, among the model's classes.

        Parameters
        ----------
        images : path, folder, PIL image, array, or a list of these
            The photos.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Columns as in `classes`; a photo of none of them has its likeliest class too, see
            `explain`.

        Examples
        --------
        >>> model.predict_proba("some.jpg").round(2)  # doctest: +SKIP
        array([[0.91, 0.06, 0.03]])
        """
        found: NDArray[np.float64] = self.current.classifier.predict_proba(self.embed(images))
        return found

    def export(self, path: str | os.PathLike[str], *, force: bool = False) -> Any:
        """Write the model with its encoder as one ONNX file, as `cala export` does.

        Parameters
        ----------
        path : path-like
            The file, ending in `.onnx`; the weights of the classes are written beside it.
        force : bool, default=False
            Overwrite existing files.

        Returns
        -------
        cala.export.Exported
            What was written.

        Examples
        --------
        >>> model.export("birds.onnx").classes  # doctest: +SKIP
        12
        """
        from importlib import import_module  # a room above this one, which needs torch

        return import_module("cala.export").export_onnx(self, Path(path), force=force)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        revision: str | None = None,
        token: str | None = None,
        thumbnails: bool = False,
    ) -> str:
        """Upload the model to the Hugging Face hub, with a card that says what it knows.

        Parameters
        ----------
        repo_id : str
            The repository, such as "user/birds"; it is created if it does not exist.
        private : bool, optional
            Whether a new repository is private. Default: what your account says.
        revision : str, optional
            The branch, created if it does not exist. Default: main.
        token : str, optional
            Default: that of `hf auth login`, or HF_TOKEN.
        thumbnails : bool, default=False
            Upload small copies of the photos and the names of their files too. Default: neither.

        Returns
        -------
        str
            The address of the commit.

        Examples
        --------
        >>> cala.load("birds").push_to_hub("user/birds", private=True)  # doctest: +SKIP
        'https://huggingface.co/user/birds/commit/…'
        """
        from cala.model.hub import push

        how: dict[str, Any] = {"private": private, "revision": revision, "token": token}
        return push(self.store, repo_id, thumbnails=thumbnails, **how)

    def explain(
        self,
        images: Any,
        *,
        top: int = 3,
        unknown: str = "on",
        reject: float | None = None,
        why: bool = False,
        advance: Advance | None = None,
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
            Fraction of photos of known classes that may be called unknown. Default: the model's.
        why : bool, default=False
            Add the closest classes, and the answer if no class were favoured.
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
        labels: str | Sequence[str] | None = None,
        *,
        reject: float | None = None,
        advance: Advance | None = None,
    ) -> Evaluation:
        """Evaluate the model on labelled photos.

        Parameters
        ----------
        images : path, folder, PIL image, array, or a list of these
            The photos; without `labels`, a folder with one folder of photos per class.
        labels : str or sequence of str, optional
            Their class, or one for each; photos of classes that the model does not know test
            whether it calls them unknown.
        reject : float, optional
            Fraction of photos of known classes that may be called unknown. Default: the model's.
        advance : callable, optional
            Called with the number of photos that have just been encoded.

        Returns
        -------
        Evaluation
            Accuracies, mistakes, and what calling photos unknown costs and brings.

        Examples
        --------
        >>> model.evaluate("photos/test").accuracy  # doctest: +SKIP
        0.88
        """
        check_limits(reject=reject)
        if labels is None:
            images, labels = labelled(images, "test")
        split = gather(images)
        labels = [plain_name(label) for label in _one_each(labels, len(split))]
        features = self._embed(split, advance)
        learned = self.current.photos.owners()
        again = sum(digest in learned for digest in digests_of(split))
        return evaluate(
            self.current,
            features,
            labels,
            reject=reject,
            learned_from=again,
            images=split.names,
        )

    def estimate(self, *, quick: bool = False) -> Estimate:
        """What to expect on new photos, from the photos it has learned: each is left out once.

        Parameters
        ----------
        quick : bool, default=False
            Leave out known classes if they have many photos, which takes seconds.

        Returns
        -------
        Estimate
            Shares that were right, classes that are easily confused, and doubtful photos.

        Examples
        --------
        >>> str(model.estimate().share())  # doctest: +SKIP
        'about 85 % (between 70 and 95)'
        """
        return estimate(self.current, quick)

    def learning_curve(self) -> list[CurvePoint]:
        """What more photos of each class have brought so far: whether more would pay.

        Returns
        -------
        list of CurvePoint
            Photos of each class, and the fraction of other photos that are right then; empty if
            there are too few to leave any out.

        Examples
        --------
        >>> [(one.photos, one.right) for one in model.learning_curve()]  # doctest: +SKIP
        [(1, 0.71), (2, 0.8), (4, 0.86)]
        """
        return learning_curve(self.current)

    def history(self) -> list[dict[str, Any]]:
        """All changes, oldest first."""
        return self.store.journal()


def load(
    path: str | os.PathLike[str],
    *,
    encoder: str | os.PathLike[str] | Encoder | None = None,
    device: str = "cpu",
    engine: str = "auto",
    trust_encoder: str | None = None,
) -> Model:
    """Open the model in a folder.

    Parameters
    ----------
    path : path-like
        The folder that `fit` made, or `hf://user/name[@revision]`, a model of the Hugging Face hub,
        which is downloaded and can be asked but not changed.
    encoder : str, path-like or Encoder, optional
        Only if the encoder that the model names has moved.
    device : str, default="cpu"
        Where the encoder runs.
    engine : {"auto", "torch", "onnxruntime", "openvino"}, default="auto"
        What runs the encoder, see `cala.load_encoder`.
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
    given: dict[str, Any] = {"encoder": encoder, "trust_encoder": trust_encoder}
    return Model(path, device=device, engine=engine, **given)


def _store(path: Path) -> Store:
    if not path.as_posix().startswith("hf:/"):
        return Store(path)
    from cala.model.hub import downloaded

    return downloaded(path.as_posix())


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


def _freed(before: ModelVersion, digests: Sequence[bytes], names: Sequence[str]) -> ModelVersion:
    """Without the photos that are about to be learned for another class."""
    ids = dict(zip(before.classifier.head_.classes, before.names, strict=True))
    owners = before.photos.owners()
    moved = {
        digest
        for digest, name in zip(digests, before.current_names(names), strict=True)
        if digest in owners and ids[owners[digest]] != name
    }
    return before.without_photos(moved) if moved else before


def _learned(
    before: ModelVersion,
    files: Sequence[str],
    features: Features,
    names: Sequence[str],
    digests: Sequence[bytes],
) -> tuple[ModelVersion, Added, NewPhotos]:
    """The version after learning photos, what was added, and which photos were new."""
    renamed = {name: before.former[name] for name in names if name in before.former}
    names = before.current_names(names)
    ids = dict(zip(before.classifier.head_.classes, before.names, strict=True))
    owners = before.photos.owners()
    found = new_photos(files, digests, names, lambda digest: ids.get(owners.get(digest, -1)))
    counts = dict(Counter(found.names))
    new = tuple(name for name in counts if name not in before.names)
    alike = {name: other for name in new if (other := before.alike(name, 0.95)) is not None}
    added = Added(counts, new, found.duplicates, alike, renamed=renamed)
    if not counts:
        return before, added, found
    own = [files[row] for row in found.rows]
    after = before.with_photos(features[found.rows], found.names, found.digests, own)
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
