"""`Model`: a folder on disk, its encoder, and what can be done with both."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cala.data.image_scan import scan
from cala.data.images import ImageSplit
from cala.errors import CalaError, InputError
from cala.files import reason, shown
from cala.model.evaluation import Evaluation, evaluate
from cala.model.knowledge import Knowledge, check_name, plain_name
from cala.model.learnable import digests_of, fresh_photos, journal_entry
from cala.model.photos import gather
from cala.model.prediction import Prediction, predict
from cala.model.thumbnails import drop_thumbnails, write_thumbnails
from cala.store import Content, Entry, Store

if TYPE_CHECKING:  # imported where photos are looked at: an encoder's engine takes seconds to load
    from cala.encoders.base import Encoder

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Added:
    """What `add` did: new photos per class, which classes are new, which of these have a name like
    that of another class, photos that were known already and photos left out.
    """

    photos: dict[str, int]
    new: tuple[str, ...]
    again: int
    alike: dict[str, str] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    version: int = 0


class Model:
    """A model on disk. Every change is a new version, there at once or not at all.

    Two processes may change a model at the same time: their changes follow each other.

    path : its folder
    encoder : only where the one that the model names has moved; its fingerprint must fit
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        encoder: str | os.PathLike[str] | Encoder | None = None,
        device: str = "cpu",
    ) -> None:
        self.store = Store(Path(path))
        self.device = device
        self._encoder: Encoder | None = None
        self._given = encoder
        self.knowledge = Knowledge.from_content(self.store.read())

    @classmethod
    def _created(
        cls,
        store: Store,
        knowledge: Knowledge,
        entry: Entry,
        encoder: Encoder,
        thumbnails: ImageSplit | None,
    ) -> Model:
        store.create(knowledge.to_content(), entry)
        if thumbnails is not None:
            try:
                write_thumbnails(store.path, thumbnails)
            except OSError as error:
                raise InputError(
                    f"the model {shown(store.path)} is made, but not all of its thumbnails "
                    f"({reason(error)})"
                ) from error
        return cls(store.path, encoder=encoder)

    def __repr__(self) -> str:
        return f"Model({str(self.path)!r}: {len(self.classes)} classes)"

    @property
    def path(self) -> Path:
        return self.store.path

    @property
    def version(self) -> int:
        """Number of the version on disk; every change counts it up."""
        return self.store.version()

    @property
    def classes(self) -> list[str]:
        """In order of arrival; the first `n_known` were there at `fit`."""
        return self.knowledge.names

    @property
    def n_known(self) -> int:
        return self.knowledge.n_known

    @property
    def notes(self) -> tuple[str, ...]:
        """What was to be said when it was made, such as that its photos are few."""
        return self.knowledge.notes

    @property
    def encoder(self) -> Encoder:
        """Loaded when first needed, and checked to be the one that the model was made with."""
        if self._encoder is None:
            self._encoder = self._load_encoder()
        return self._encoder

    def _load_encoder(self) -> Encoder:
        from cala.encoders import load_encoder
        from cala.encoders.base import Encoder

        card = self.knowledge.encoder
        given = card.uri if self._given is None else self._given
        try:
            found = given if isinstance(given, Encoder) else load_encoder(given, self.device)
        except InputError as error:
            raise InputError(
                f"{shown(self.path)} needs its encoder {shown(card.uri)}, which cannot be loaded "
                f"({error}). Where it has moved, give its new place with --encoder"
            ) from error
        if found.fingerprint != card.fingerprint:
            raise InputError(
                f"{shown(given)} is not the encoder that {shown(self.path)} was made with: its "
                f"fingerprint is {found.fingerprint[:12]}…, not {card.fingerprint[:12]}…"
            )
        return found

    def reload(self) -> Model:
        """See what other processes have changed."""
        before, self.knowledge = self.knowledge, Knowledge.from_content(self.store.read())
        if before.encoder.fingerprint != self.knowledge.encoder.fingerprint:
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

        images : paths, folders, PIL images or arrays; label : their class, or one for each
        """
        split = gather(images)
        names = [check_name(name) for name in _one_each(label, len(split))]
        skipped: tuple[str, ...] = ()
        if skip_bad:
            split, names, skipped = _readable(split, names)
        digests = digests_of(split)
        features = self._embed(split, advance)
        added = self.learn(
            split.names,
            digests,
            features,
            names,
            thumbnails=(lambda: write_thumbnails(self.path, split)) if keep_thumbnails else None,
        )
        return replace(added, skipped=skipped)

    def learn(
        self,
        files: Sequence[str],
        digests: Sequence[bytes],
        features: NDArray[np.float32],
        names: Sequence[str],
        *,
        thumbnails: Callable[[], list[Path]] | None = None,
        about: Callable[[Knowledge, Added], dict[str, Any]] = lambda after, added: {},
    ) -> Added:
        """`add` for photos whose embeddings (n, d) by this model's encoder are there already.

        files : for messages; digests : SHA-256 of each photo; names : the class of each
        thumbnails : writes small copies, once the change is sure, and returns those that are new
        about : what else the journal is to say, from what is known then and what was added; where
            it raises nothing is changed
        """
        card = self.knowledge.encoder
        names = [check_name(name) for name in names]
        done: list[tuple[Knowledge, Added]] = []
        pictures: list[Path] = []

        def make(content: Content) -> tuple[Content, Entry] | None:
            before = Knowledge.from_content(content)
            before.encoder.check_same(card, self.path)
            after, added, fresh = _learned(before, files, features, names, digests)
            done.append((after, added))
            more = about(after, added)
            if not added.photos:
                return None
            if thumbnails is not None:
                pictures.extend(thumbnails())
            entry = journal_entry("add", added.photos, fresh, added.again)
            return after.to_content(), replace(entry, details={**entry.details, **more})

        try:
            version = self.store.change(make)
        except BaseException:
            for picture in pictures:
                picture.unlink(missing_ok=True)
            raise
        self.knowledge, added = done[-1]
        return replace(added, version=version)

    def forget(self, label: str) -> Model:
        """Remove a class."""
        return self._change(lambda k: k.without(label), Entry("forget", {"class": label}))

    def rename(self, old: str, new: str) -> Model:
        """Call a class by another name."""
        entry = Entry("rename", {"from": old, "to": new})
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

        delta : the shift of all new classes itself, such as one that was found on labelled photos
        """
        given = {
            "objective": objective,
            "max_base_loss": max_base_loss,
            "delta": delta,
            "reject": reject,
        }
        details = {name: value for name, value in given.items() if value is not None}
        if not details:
            raise InputError(
                "nothing to change: give objective, max_base_loss, delta or reject (--objective, "
                "--max-base-loss, --delta or --reject)"
            )
        check_base_loss(max_base_loss)
        check_delta(delta)
        if reject is not None:
            check_reject(reject)

        def tuned(knowledge: Knowledge) -> Knowledge:
            classifier = knowledge.classifier
            if any(value is not None for value in (objective, max_base_loss, delta)):
                classifier = copy.copy(classifier)
                classifier.objective = "accuracy" if objective is None else objective
                classifier.max_base_loss = max_base_loss
                classifier.set_operating_point(
                    classifier.objective, max_base_loss=max_base_loss, delta=delta
                )
            rate = knowledge.reject if reject is None else reject
            return replace(knowledge, classifier=classifier, reject=rate)

        return self._change(tuned, Entry("tune", details))

    def undo(self) -> Model:
        """Go back by one change."""
        self.store.undo()
        return self.cleared()

    def redo(self) -> Model:
        """Take an undo back."""
        self.store.redo()
        return self.cleared()

    def _change(self, make: Callable[[Knowledge], Knowledge], entry: Entry) -> Model:
        done: list[Knowledge] = []

        def changed(content: Content) -> tuple[Content, Entry]:
            done.append(make(Knowledge.from_content(content)))
            return done[-1].to_content(), entry

        self.store.change(changed)
        self.knowledge = done[-1]
        return self.cleared()

    def cleared(self) -> Model:
        with suppress(CalaError, OSError):  # the change has happened, whatever comes of this
            drop_thumbnails(self.path, lambda: self.store.reachable("photos"))
        return self.reload()

    # Questions

    def embed(self, images: Any, advance: Advance = lambda done: None) -> NDArray[np.float32]:
        """Embeddings (n, d) of photos, each computed once, ever."""
        return self._embed(gather(images), advance)

    def _embed(self, split: ImageSplit, advance: Advance) -> NDArray[np.float32]:
        from cala.encoders.embed import embed

        return embed(split, self.encoder, tta=self.knowledge.encoder.tta, advance=advance)

    def predict(
        self, images: Any, *, unknown: str = "on", reject: float | None = None
    ) -> list[str]:
        """The class of each photo, or "unknown"."""
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
        """Everything that is known about each photo's answer.

        unknown : `on` says "unknown" where nothing fits, `report` only notes it, `off` does not ask
        reject : share of genuine photos that may be called unknown, instead of the model's own
        """
        if reject is not None:
            check_reject(reject)
        split = gather(images)
        features = self._embed(split, advance)
        return predict(
            self.knowledge,
            features,
            split.names,
            top=top,
            unknown=unknown,
            reject=reject,
            why=why,
        )

    def evaluate(
        self,
        images: Any,
        labels: str | Sequence[str],
        *,
        reject: float | None = None,
        advance: Advance = lambda done: None,
    ) -> Evaluation:
        """How well it does on labelled photos; classes that it does not know are strangers."""
        if reject is not None:
            check_reject(reject)
        split = gather(images)
        labels = [plain_name(label) for label in _one_each(labels, len(split))]
        features = self._embed(split, advance)
        seen = self.knowledge.seen.owners()
        again = sum(digest in seen for digest in digests_of(split))
        return evaluate(self.knowledge, features, labels, reject=reject, learned_from=again)

    def history(self) -> list[dict[str, Any]]:
        """The journal, oldest change first."""
        return self.store.journal()


def load(
    path: str | os.PathLike[str],
    *,
    encoder: str | os.PathLike[str] | Encoder | None = None,
    device: str = "cpu",
) -> Model:
    """Open the model in a folder.

    encoder : only where the one that the model names has moved
    """
    return Model(path, encoder=encoder, device=device)


def check_reject(rate: Any) -> float:
    """A share from 0 (never unknown) to 1."""
    if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 <= float(rate) < 1:
        raise InputError(f"reject is {rate!r}: give a share from 0 to below 1, such as 0.05")
    return float(rate)


def check_base_loss(loss: Any) -> None:
    """A share below 1: who writes 1 means one point, and would lose every known class."""
    if loss is not None and not (isinstance(loss, Real) and 0 <= float(loss) < 1):
        raise InputError(
            f"max_base_loss is {loss!r}: give a share from 0 to below 1, such as 0.01 for one "
            "photo in a hundred"
        )


def check_delta(delta: Any) -> None:
    """A shift of logits, which lie within some hundreds."""
    if delta is not None and not (isinstance(delta, Real) and abs(float(delta)) <= 1000):
        raise InputError(f"delta is {delta!r}: give a number from -1000 to 1000")


def _one_each(label: Any, count: int) -> list[str]:
    """A label for each of `count` photos, from one for all or one for each."""
    if isinstance(label, str):
        return [label] * count
    try:
        labels = list(label)
    except TypeError:
        raise InputError(f"the label is {label!r}: give a name, or one for each photo") from None
    if len(labels) != count:
        raise InputError(f"{len(labels)} labels for {count} photos: give one for each")
    return labels


def _learned(
    before: Knowledge,
    files: Sequence[str],
    features: NDArray[np.float32],
    names: Sequence[str],
    digests: Sequence[bytes],
) -> tuple[Knowledge, Added, Sequence[bytes]]:
    """What is known then, what was added, and the digests of the photos that were new."""
    ids = dict(zip(before.classifier.head_.classes, before.names, strict=True))
    owners = before.seen.owners()

    def owner(digest: bytes) -> str | None:
        return ids.get(owners[digest]) if digest in owners else None

    fresh = fresh_photos(files, digests, names, owner)
    counts = dict(Counter(fresh.names))
    new = tuple(name for name in counts if name not in before.names)
    alike = {name: before.alike(name, 0.95) for name in new}
    added = Added(counts, new, fresh.again, {a: b for a, b in alike.items() if b is not None})
    if not counts:
        return before, added, ()
    after = before.with_photos(features[fresh.rows], fresh.names, fresh.digests)
    return after, added, fresh.digests


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
