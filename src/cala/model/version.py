"""One version of a model: its classifier, its photos and its encoder, to the store and back."""

from __future__ import annotations

import copy
import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.errors import InputError
from cala.estimator.growing import GrowingClassifier
from cala.estimator.state import classifier_state, restore_classifier
from cala.files import preview, shown
from cala.store import Content

UNKNOWN = "unknown"
TTA = ("none", "flip")  # as in cala.encoders.embed, which would load an engine for networks
GROWING = ("sums", "counts", "beta", "slope", "offset")  # arrays with a row per class
GROUPS = ("base", "classes", "photos")

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

    def counts(self) -> Counter[int]:
        return Counter(self.owner.tolist())


@dataclass(frozen=True)
class ModelVersion:
    """One version of a model. A change gives another one; nothing is changed in place.

    reject : fraction of genuine photos that may be called unknown
    notes : what there was to say when the model was made, such as that it has few photos
    others : groups of arrays that this version of cala does not use, kept as they are
    """

    classifier: GrowingClassifier
    photos: PhotoIndex
    encoder: EncoderCard
    reject: float
    fakes: str
    notes: tuple[Note, ...] = ()
    others: dict[str, Any] = field(default_factory=dict)

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

    def can_reject(self, rate: float | None = None) -> bool:
        """Whether there were photos enough to call anything unknown at a rate."""
        least = 1 / (1 + int(self.classifier.rejection_.sizes[0]))
        return self.classifier.rejection_.is_on and least < (self.reject if rate is None else rate)

    def with_photos(
        self, features: Features, names: Sequence[str], digests: Sequence[bytes]
    ) -> ModelVersion:
        """After learning photos (n, d) that it has not seen."""
        classifier = copy.copy(self.classifier).partial_fit(features, np.array(names, dtype=str))
        ids = dict(zip(classifier.classes_.tolist(), classifier.head_.classes, strict=True))
        photos = self.photos.with_photos(digests, [ids[name] for name in names])
        return replace(self, classifier=classifier, photos=photos)

    def without(self, name: str) -> ModelVersion:
        self.check_known(name)
        owner = self.classifier.head_.classes[self.names.index(name)]
        smaller = copy.copy(self.classifier).forget(name)
        return replace(self, classifier=smaller, photos=self.photos.without(owner))

    def renamed(self, old: str, new: str) -> ModelVersion:
        self.check_known(old)
        name = check_name(new)
        if name == old:
            raise InputError(f"'{shown(old)}' already has that name", field="name")
        return replace(self, classifier=copy.copy(self.classifier).rename(old, name))

    def check_known(self, name: str) -> None:
        if name in self.names:
            return
        near = self.alike(name)
        raise InputError(
            f"there is no class '{shown(name)}'",
            f"did you mean '{shown(near)}'?" if near else f"there are {preview(self.names, 10)}",
            field="name",
            code="no_such_class",
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
            found = cls(
                classifier=restore_classifier(state),
                photos=PhotoIndex(photos["digest"], photos["owner"]),
                encoder=EncoderCard(**{k: v for k, v in card.items() if k in CARD}),
                reject=float(meta["reject"]),
                fakes=str(meta["fakes"]),
                notes=tuple(Note(*pair) for pair in zip(codes, texts, strict=True)),
                others={name: group for name, group in groups.items() if name not in GROUPS},
            )
            found._check(meta)
            return found
        except InputError:
            raise
        except Exception as error:  # whatever values of wrong kinds lead to
            what = f"{type(error).__name__}: {shown(error)[:200]}"
            raise InputError(
                f"the model does not hold what it should ({what})", code="damaged_file"
            ) from error

    def _check(self, meta: dict[str, Any]) -> None:
        """Raise where parts do not fit together."""
        head, card = self.classifier.head_, self.encoder
        listed = [(one["name"], one["kind"]) for one in meta["classes"]]
        own = [(name, self.kind_at(column)) for column, name in enumerate(self.names)]
        fits = (
            listed == own
            and isinstance(card.uri, str)
            and isinstance(card.fingerprint, str)
            and card.dim == head.dim
            and isinstance(card.shot_views, int)
            and card.tta in TTA
            and 0 <= self.reject < 1
            and self.photos.digest.shape == (len(self.photos), 32)
            and len(head.logits(np.ones((1, head.dim), head.dtype))[0]) == len(own)
        )
        if not fits:
            raise ValueError("its parts do not fit together")


def _folded(name: str) -> str:
    return " ".join(re.split(r"[\s_.-]+", name.casefold()))


def plain_name(given: Any) -> str:
    """A name without blanks around it, in one way of writing accents."""
    return unicodedata.normalize("NFC", given).strip() if isinstance(given, str) else ""


def check_name(given: Any) -> str:
    """The plain name that a class gets; one that would mislead is refused."""
    name = plain_name(given)
    if not any(c.isprintable() and not c.isspace() for c in name) or "\0" in name:
        raise InputError(f"a class cannot be called {given!r}", "use letters", field="name")
    if name.casefold() == UNKNOWN:
        raise InputError(
            f"a class cannot be called '{UNKNOWN}', which stands for photos that fit no class",
            "choose another name",
            field="name",
        )
    return name
