"""One version of a model: its classifier, its photos and its encoder, to the store and back."""

from __future__ import annotations

import copy
import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.core.rejection import among, unit_vectors
from cala.errors import InputError
from cala.estimator.growing import GrowingClassifier
from cala.estimator.state import classifier_state, restore_classifier
from cala.files import preview, shown
from cala.model.kept import KeptPhotos
from cala.store import Content

UNKNOWN = "unknown"
TTA = ("none", "flip")  # as in cala.encoders.embed, which would load an engine for networks
# Arrays that change with every class that is added; the others are written once.
GROWING = (
    "sums", "counts", "beta", "slope", "offset", "n_base", "images", "columns", "rejected",
    "spread",
)  # fmt: skip
KEPT = ("embeddings", "embeddings_new")  # of photos of known and of new classes
FEWEST_NEW = 10  # photos since `fit` from which on it may pay to refit
GROUPS = ("base", "classes", "photos", *KEPT)
# Arrays that every answer rests on; in others, infinity or NaN may have a meaning.
FINITE = {
    *("alpha", "beta", "bias", "matrix", "mean", "offset", "rejected"),
    *("rows", "slope", "sums", "weight"),
}
LONGEST_CLASS = 200  # characters of a name
MOST_SHOT_VIEWS = 1000

Features = NDArray[np.float32]


@dataclass(frozen=True)
class Note:
    """Something to know about how a model was made; `code` is for programs, `text` for people."""

    code: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class EncoderCard:
    """Which encoder a model needs: its URI, a fingerprint to know it again by, and how it looks at
    photos (`tta`), at those to learn from in particular (`shot_views`)."""

    uri: str
    fingerprint: str
    dim: int
    tta: str = "none"
    shot_views: int = 0

    def check_same(self, other: EncoderCard, model: Path) -> None:
        """Raise if embeddings made for the other card do not fit into this model."""
        if replace(self, uri=other.uri) != other:
            raise InputError(
                f"{shown(model)} was made again with another encoder ({shown(self.uri)})",
                "load it again",
                code="encoder_changed",
            )


CARD = {field.name for field in fields(EncoderCard)}


@dataclass(frozen=True)
class PhotoIndex:
    """Which photos a model has learned from.

    digest : (n, 32) uint8, SHA-256 of each photo; owner : (n,) number of its class
    """

    digest: NDArray[np.uint8]
    owner: NDArray[np.int64]

    @classmethod
    def empty(cls) -> PhotoIndex:
        return cls(np.zeros((0, 32), np.uint8), np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.owner)

    def owners(self) -> dict[bytes, int]:
        """Class of each photo, by digest."""
        rows = np.ascontiguousarray(self.digest).view("V32").ravel().tolist()
        return dict(zip(rows, self.owner.tolist(), strict=True))

    def with_photos(self, digests: Sequence[bytes], owners: Sequence[int]) -> PhotoIndex:
        new = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32)
        return PhotoIndex(
            np.concatenate([self.digest, new]),
            np.concatenate([self.owner, np.array(owners, dtype=np.int64)]),
        )

    def without(self, owner: int) -> PhotoIndex:
        keep = self.owner != owner
        return PhotoIndex(self.digest[keep], self.owner[keep])

    def without_photo(self, digest: bytes) -> PhotoIndex:
        keep = (self.digest != np.frombuffer(digest, np.uint8)).any(1)
        return PhotoIndex(self.digest[keep], self.owner[keep])

    def counts(self) -> Counter[int]:
        return Counter(self.owner.tolist())


@dataclass(frozen=True)
class ModelVersion:
    """One version of a model. A change gives another one; nothing is changed in place.

    reject : fraction of photos of known classes that may be called unknown
    notes : what there was to say when the model was made, such as that it has few photos
    others : groups of arrays that this version of cala does not use, kept as they are
    former : names that classes had before they were renamed -> their names now
    kept : embeddings of photos, as far as they are kept
    fitted : photos that `fit` or `refit` learned from
    """

    classifier: GrowingClassifier
    photos: PhotoIndex
    encoder: EncoderCard
    reject: float
    fakes: str
    notes: tuple[Note, ...] = ()
    others: dict[str, Any] = field(default_factory=dict)
    former: dict[str, str] = field(default_factory=dict)
    kept: KeptPhotos = field(default_factory=lambda: KeptPhotos.empty(0))
    fitted: int = 0

    @property
    def names(self) -> list[str]:
        """Classes in order of arrival."""
        return [str(name) for name in self.classifier.classes_.tolist()]

    @property
    def n_known(self) -> int:
        """How many of the first classes were there at `fit`."""
        return self.classifier.n_base_

    def kind_at(self, column: int) -> str:
        """`known` for classes of `fit`, `new` for those that were added."""
        return "known" if column < self.n_known else "new"

    def can_reject(self) -> bool:
        """Whether there were photos enough to call anything unknown."""
        return self.classifier.rejection_.is_on

    def keeps_all(self) -> bool:
        """Whether the embedding of every photo is kept."""
        return 0 < len(self.photos) == len(self.kept)

    def refit_pays(self) -> bool:
        """Whether it has learned as many photos since `fit` as `fit` had, and could `refit`."""
        since = len(self.photos) - self.fitted
        enough = since >= max(self.fitted, FEWEST_NEW)
        return enough and self.keeps_all() and not self.encoder.shot_views

    def with_photos(
        self,
        features: Features,
        names: Sequence[str],
        digests: Sequence[bytes],
        files: Sequence[str] = (),
    ) -> ModelVersion:
        """After learning photos (n, d) that it has not seen; `files` (n,) are their names."""
        classifier = copy.copy(self.classifier).partial_fit(features, np.array(names, dtype=str))
        ids = dict(zip(classifier.classes_.tolist(), classifier.head_.classes, strict=True))
        photos = self.photos.with_photos(digests, [ids[name] for name in names])
        files = files or [digest.hex()[:12] for digest in digests]
        kept = self.kept.with_photos(digests, features, files)
        return replace(self, classifier=classifier, photos=photos, kept=kept)

    def with_kept_known(self) -> ModelVersion:
        """Without embeddings of photos that it does not know: an older cala leaves them behind."""
        owners = self.photos.owners()
        known = np.array([key in owners for key in self.kept.digests()], dtype=bool)
        return self if known.all() else replace(self, kept=self.kept.at(known))

    def columns_kept(self) -> NDArray[np.int64]:
        """(n,) column of the class of each photo in `kept`."""
        place = {number: column for column, number in enumerate(self.classifier.head_.classes)}
        owners = self.photos.owners()
        return np.array([place[owners[key]] for key in self.kept.digests()], dtype=np.int64)

    def without(self, name: str) -> ModelVersion:
        self.check_known(name)
        owner = self.classifier.head_.classes[self.names.index(name)]
        smaller = copy.copy(self.classifier).forget(name)
        former = {before: now for before, now in self.former.items() if now != name}
        kept = self.kept.at(self.columns_kept() != self.names.index(name))
        photos = self.photos.without(owner)
        return replace(self, classifier=smaller, photos=photos, former=former, kept=kept)

    def without_photo(self, name: str, photo: str) -> tuple[ModelVersion, str, bytes]:
        """Without one photo of a class; also its name and its digest.

        photo : its file name, with its folder or without, or the beginning of its SHA-256
        """
        self.check_known(name)
        own = np.flatnonzero(self.columns_kept() == self.names.index(name))
        digests, files = self.kept.digests(), self.kept.names
        found = [
            place
            for place in own.tolist()
            if files[place] == photo
            or files[place].rpartition("/")[2] == photo
            or (len(photo) >= 8 and digests[place].hex().startswith(photo.lower()))
        ]
        if len(found) != 1:
            listed = [files[place] for place in (found or own)]
            several = "several photos" if found else "no photo"
            detail = f"'{shown(name)}' has {several} called '{shown(photo)}'"
            if found:
                listed = [f"{digests[p].hex()[:8]} ({files[p]})" for p in found]
                fix = f"name one by the beginning of its SHA-256: {preview(listed, 5)}"
                raise InputError(detail, fix, field="photo", code="two_photos")
            fix = f"there are {preview(listed, 5)}" if listed else "its photos are not kept"
            raise InputError(detail, fix, field="photo", code="no_such_photo")
        place = found[0]
        smaller = copy.copy(self.classifier).remove(self.kept.rows[[place]], name)
        kept = self.kept.at(np.arange(len(self.kept)) != place)
        photos = self.photos.without_photo(digests[place])
        version = replace(self, classifier=smaller, photos=photos, kept=kept)
        return version, files[place], digests[place]

    def without_photos(self, digests: Iterable[bytes]) -> ModelVersion:
        """Without some photos; a class that loses all of them is forgotten."""
        gone, version, counts = set(digests), self, self.photos.counts()
        taken = np.array([digest in gone for digest in self.kept.digests()], dtype=bool)
        if taken.sum() < len(gone):
            detail = "the embeddings of these photos are not kept, so they stay where they are"
            raise InputError(detail, "forget their class, and add the photos again", field="photo")
        columns = self.columns_kept()
        for column in np.unique(columns[taken]).tolist():
            name, own = self.names[column], taken & (columns == column)
            if own.sum() == counts[self.classifier.head_.classes[column]]:
                version = version.without(name)
            else:
                rows = self.kept.rows[own]
                smaller = copy.copy(version.classifier).remove(rows, name)
                version = replace(version, classifier=smaller)
        photos = version.photos
        for digest in gone & set(photos.owners()):
            photos = photos.without_photo(digest)
        return replace(version, photos=photos, kept=self.kept.at(~taken))

    def merged(self, old: str, into: str) -> ModelVersion:
        """With the photos of one class in another."""
        for name in (old, into):
            self.check_known(name)
        if old == into:
            raise InputError(f"'{shown(old)}' is one class already", field="into")
        own = self.kept.at(self.columns_kept() == self.names.index(old))
        digests = own.digests()
        smaller = self.without_photos(digests)
        if old in smaller.names:
            detail = f"not all photos of '{shown(old)}' are kept"
            raise InputError(detail, "forget it, and add its photos again", field="id")
        former = {o: into if n == old else n for o, n in self.former.items()}
        after = smaller.with_photos(own.rows, [into] * len(own), digests, own.names)
        return replace(after, former={**former, old: into})

    def renamed(self, old: str, new: str) -> ModelVersion:
        self.check_known(old)
        name = check_name(new)
        if name == old:
            raise InputError(f"'{shown(old)}' already has that name", field="name")
        former = {o: name if n == old else n for o, n in self.former.items() if o != name}
        classifier = copy.copy(self.classifier).rename(old, name)
        return replace(self, classifier=classifier, former={**former, old: name})

    def current_names(self, given: Sequence[str]) -> list[str]:
        """Names of classes as they are now; a former name stands for the class that had it."""
        return [self.former.get(name, name) for name in given]

    def check_known(self, name: str) -> None:
        if name in self.names:
            return
        near = self.former.get(name) or self.alike(name)
        raise InputError(
            f"there is no class '{shown(name)}'",
            f"did you mean '{shown(near)}'?" if near else f"there are {preview(self.names, 10)}",
            field="name",
            code="no_such_class",
        )

    def check_not_learned(self, features: Features) -> None:
        """Raise if a class has learned one of the photos with these embeddings (n, d)."""
        found = np.flatnonzero(among(unit_vectors(self.kept.rows), unit_vectors(features)))
        if len(found):
            name = shown(self.names[self.columns_kept()[found[0]]])
            raise InputError(
                f"{shown(self.kept.names[found[0]])} is a photo that '{name}' has learned",
                f"leave it out, or take it out of '{name}' first with `cala forget`",
                field="photos",
                code="two_labels",
            )

    def alike(self, name: str, closeness: float = 0.7) -> str | None:
        """Another class whose name looks like this one, whatever its case and its blanks."""
        folded = {_folded(other): other for other in self.names if other != name}
        found = difflib.get_close_matches(_folded(name), folded, n=1, cutoff=closeness)
        return folded[found[0]] if found else None

    def to_content(self) -> Content:
        state = classifier_state(self.classifier)
        groups: dict[str, Any] = {**self.others, "base": {}, "classes": {}}
        groups["photos"] = {"digest": self.photos.digest, "owner": self.photos.owner}
        known = self.columns_kept() < self.n_known
        for group, own in zip(KEPT, (known, ~known), strict=True):
            if own.any():  # apart, since adding photos of new classes leaves the others alone
                groups[group] = self.kept.at(own).arrays()
        for name, array in state["tensors"].items():
            group = "classes" if name.rpartition(".")[2] in GROWING else "base"
            groups[group][name] = array
        photos, beta = self.photos.counts(), self.classifier.beta_.tolist()
        classes = [
            {
                "name": name,
                "kind": self.kind_at(column),
                "photos": photos[self.classifier.head_.classes[column]],
                "beta": round(float(beta[column]), 6),
            }
            for column, name in enumerate(self.names)
        ]
        meta = {
            "classes": classes,
            "encoder": asdict(self.encoder),
            "reject": self.reject,
            "fakes": self.fakes,
            "notes": [note.text for note in self.notes],
            "note_codes": [note.code for note in self.notes],
            "former_names": self.former,
            "fitted_photos": self.fitted,
            "classifier": {"config": state["config"], "meta": state["meta"]},
        }
        return Content(meta, groups)

    @classmethod
    def from_content(cls, content: Content) -> ModelVersion:
        """The version that a store has read; fields and groups of later versions may be there."""
        meta, groups = content.meta, content.groups
        try:
            card, photos, texts = meta["encoder"], groups["photos"], meta["notes"]
            codes = meta.get("note_codes", ["note"] * len(texts))
            state = {**meta["classifier"], "tensors": {**groups["base"], **groups["classes"]}}
            _check_numbers(state["tensors"])
            found = cls(
                classifier=restore_classifier(state),
                photos=PhotoIndex(photos["digest"], photos["owner"]),
                encoder=EncoderCard(**{k: v for k, v in card.items() if k in CARD}),
                reject=float(meta["reject"]),
                fakes=str(meta["fakes"]),
                notes=tuple(Note(*pair) for pair in zip(codes, texts, strict=True)),
                others={name: group for name, group in groups.items() if name not in GROUPS},
                former=dict(meta.get("former_names", {})),
                kept=KeptPhotos.of([groups[name] for name in KEPT if name in groups], card["dim"]),
                fitted=int(meta.get("fitted_photos", len(photos["owner"]))),
            ).with_kept_known()
            found._check(meta)
            return found
        except InputError:
            raise
        except Exception as error:  # whatever values of wrong kinds lead to
            what = f"{type(error).__name__}: {shown(error)[:200]}"
            raise InputError(
                f"the data of the model are inconsistent ({what})", code="damaged_file"
            ) from error

    def _check(self, meta: dict[str, Any]) -> None:
        """Raise where parts do not fit together."""
        head, card, judge = self.classifier.head_, self.encoder, self.classifier.rejection_
        listed = [(one["name"], one["kind"]) for one in meta["classes"]]
        own = [(name, self.kind_at(column)) for column, name in enumerate(self.names)]
        fits = (
            listed == own
            and isinstance(card.uri, str)
            and isinstance(card.fingerprint, str)
            and card.dim == head.dim
            and type(card.dim) is int
            and type(card.shot_views) is int
            and 0 <= card.shot_views <= MOST_SHOT_VIEWS
            and meta["encoder"]["tta"] in TTA
            and all(isinstance(word, str) for note in self.notes for word in astuple(note))
            and 0 <= self.reject < 1
            and set(self.former.values()) <= set(self.names)
            and not set(self.former) & set(self.names)
            and self.photos.digest.shape == (len(self.photos), 32)
            and self.kept.digest.shape == (len(self.kept), 32)
            and self.kept.rows.shape == (len(self.kept), card.dim)
            and np.isfinite(self.kept.rows).all()
            and judge.images.shape[:1] == judge.columns.shape
            and np.isin(judge.columns, np.arange(len(judge.table))).all()
            and judge.p_values(np.ones((1, card.dim), np.float32)).shape == (1,)
            and len(judge.table) in (0, len(own))
            and len(self.columns_kept()) == len(self.kept)
            and len(head.logits(np.ones((1, head.dim), head.dtype))[0]) == len(own)
        )
        if not fits:
            raise ValueError("its parts do not fit together")


def _check_numbers(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise for numbers that no classifier has: every answer would be wrong."""
    for name, array in arrays.items():
        part = name.rpartition(".")[2]
        wrong = ~np.isfinite(array) if part in FINITE else np.zeros(array.shape, bool)
        if part == "delta":
            wrong = np.isnan(array)
        if part == "counts":
            wrong = array < 1
        if wrong.any():
            raise ValueError(f"{shown(name)} holds {array[wrong][0]}")


def _folded(name: str) -> str:
    return " ".join(re.split(r"[\s_.-]+", name.casefold()))


def plain_name(given: Any) -> str:
    """A name without blanks around it, in one way of writing accents."""
    return unicodedata.normalize("NFC", given).strip() if isinstance(given, str) else ""


def _seen(name: str) -> str:
    """What a reader sees of a name: invisible characters and other forms of letters are gone."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(c for c in folded if unicodedata.category(c) not in ("Cf", "Cc")).strip()


def check_name(given: Any) -> str:
    """The plain name that a class gets; one that would mislead is refused."""
    name = plain_name(given)
    if len(name) > LONGEST_CLASS:
        detail = f"the name of a class has {len(name):,} characters"
        raise InputError(detail, f"use at most {LONGEST_CLASS}", field="name")
    letters = any(c.isprintable() and not c.isspace() for c in name)
    if not letters or "\0" in name or any("\ud800" <= c <= "\udbff" for c in name):
        raise InputError(f"a class cannot be called {given!r}", "use letters", field="name")
    if _seen(name) == UNKNOWN:
        raise InputError(
            f"a class cannot be called '{UNKNOWN}', which stands for photos that fit no class",
            "choose another name",
            field="name",
        )
    return name
