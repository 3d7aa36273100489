"""Everything one version of a model knows, and its way to the store and back."""

from __future__ import annotations

import copy
import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.errors import InputError
from cala.estimator.growing import GrowingClassifier
from cala.estimator.state import classifier_state, restore_classifier
from cala.files import shown
from cala.model.seen import SeenPhotos
from cala.store import Content

UNKNOWN = "unknown"
TTA = ("none", "flip")  # as in cala.encoders.embed, which would load an engine for networks
GROWING = ("sums", "counts", "beta", "slope", "offset")  # arrays with a row per class


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
                f"{shown(model)} was made anew with another encoder ({shown(self.uri)}) since it "
                "was opened: open it again"
            )


@dataclass(frozen=True)
class Knowledge:
    """One version. Nothing in it is changed in place: every change gives another one.

    reject : share of genuine photos that may be taken for unknown
    notes : what was said when the model was made, such as that its base is too small
    """

    classifier: GrowingClassifier
    seen: SeenPhotos
    encoder: EncoderCard
    reject: float
    fakes: str
    notes: tuple[str, ...] = ()

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

    def grown(self, features: NDArray[np.float32], names: Sequence[str]) -> GrowingClassifier:
        """The classifier after it has learned rows (n, d) with labels (n,)."""
        return copy.copy(self.classifier).partial_fit(features, np.array(names, dtype=str))

    def with_photos(
        self,
        features: NDArray[np.float32],
        names: Sequence[str],
        digests: Sequence[bytes],
    ) -> Knowledge:
        """After learning photos (n, d) that it has not seen."""
        classifier = self.grown(features, names)
        ids = dict(zip(classifier.classes_.tolist(), classifier.head_.classes, strict=True))
        seen = self.seen.with_photos(digests, [ids[name] for name in names])
        return replace(self, classifier=classifier, seen=seen)

    def without(self, name: str) -> Knowledge:
        self.check_known(name)
        owner = self.classifier.head_.classes[self.names.index(name)]
        smaller = copy.copy(self.classifier).forget(name)
        return replace(self, classifier=smaller, seen=self.seen.without(owner))

    def renamed(self, old: str, new: str) -> Knowledge:
        self.check_known(old)
        name = check_name(new)
        if name == old:
            raise InputError(f"'{shown(old)}' has that name already")
        return replace(self, classifier=copy.copy(self.classifier).rename(old, name))

    def check_known(self, name: str) -> None:
        if name not in self.names:
            near = self.alike(name)
            if near is not None:
                meant = f"did you mean '{shown(near)}'?"
                raise InputError(f"there is no class '{shown(name)}': {meant}")
            few = ", ".join(shown(n) for n in self.names[:10])
            more = f", … ({len(self.names)} in all)" if len(self.names) > 10 else ""
            raise InputError(f"there is no class '{shown(name)}': there are {few}{more}")

    def alike(self, name: str, closeness: float = 0.7) -> str | None:
        """Another class whose name looks like this one, whatever its case and its blanks."""
        folded = {_folded(other): other for other in self.names if other != name}
        found = difflib.get_close_matches(_folded(name), folded, n=1, cutoff=closeness)
        return folded[found[0]] if found else None

    def to_content(self) -> Content:
        state = classifier_state(self.classifier)
        groups: dict[str, Any] = {"base": {}, "classes": {}, "photos": self.seen.arrays()}
        for name, array in state["tensors"].items():
            group = "classes" if name.rpartition(".")[2] in GROWING else "base"
            groups[group][name] = array
        photos: Counter[int] = self.seen.counts()
        classes = [
            {
                "name": name,
                "kind": self.kind_at(column),
                "photos": photos[owner],
                "beta": round(float(beta), 6),
            }
            for column, (name, owner, beta) in enumerate(
                zip(
                    self.names,
                    self.classifier.head_.classes,
                    self.classifier.beta_.tolist(),
                    strict=True,
                )
            )
        ]
        meta = {
            "classes": classes,
            "encoder": asdict(self.encoder),
            "reject": self.reject,
            "fakes": self.fakes,
            "notes": list(self.notes),
            "classifier": {"config": state["config"], "meta": state["meta"]},
        }
        return Content(meta, groups)

    def _check(self, meta: dict[str, Any]) -> None:
        """Raise where parts do not fit together."""
        head = self.classifier.head_
        listed = [(one["name"], one["kind"]) for one in meta["classes"]]
        own = [(name, self.kind_at(column)) for column, name in enumerate(self.names)]
        fits = (
            listed == own
            and self.encoder.dim == head.dim
            and self.encoder.tta in TTA
            and 0 <= self.reject < 1
            and self.seen.digest.shape == (len(self.seen), 32)
            and len(head.logits(np.ones((1, head.dim), head.dtype))[0]) == len(own)
        )
        if not fits:
            raise ValueError("its parts do not fit together")

    @classmethod
    def from_content(cls, content: Content) -> Knowledge:
        meta, groups = content.meta, content.groups
        try:
            state = {**meta["classifier"], "tensors": {**groups["base"], **groups["classes"]}}
            found = cls(
                classifier=restore_classifier(state),
                seen=SeenPhotos(**groups["photos"]),
                encoder=EncoderCard(**meta["encoder"]),
                reject=float(meta["reject"]),
                fakes=str(meta["fakes"]),
                notes=tuple(meta["notes"]),
            )
            found._check(meta)
            return found
        except InputError:
            raise
        except Exception as error:  # whatever values of wrong kinds lead to
            what = f"{type(error).__name__}: {shown(error)[:200]}"
            raise InputError(f"the model does not hold what it should ({what})") from error


def _folded(name: str) -> str:
    return " ".join(re.split(r"[\s_.-]+", name.casefold()))


def plain_name(given: Any) -> str:
    """A name without blanks around it, in one way of writing accents."""
    return unicodedata.normalize("NFC", given).strip() if isinstance(given, str) else ""


def check_name(given: Any) -> str:
    """The plain name that a class gets; one that would mislead is refused."""
    name = plain_name(given)
    if not any(c.isprintable() and not c.isspace() for c in name) or "\0" in name:
        raise InputError(f"a class cannot be called {given!r}: give it a name in letters")
    if name.casefold() == UNKNOWN:
        raise InputError(
            f"a class cannot be called '{UNKNOWN}', which stands for photos that fit no class: "
            "choose another name"
        )
    return name
