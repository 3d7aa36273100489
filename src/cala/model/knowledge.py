"""Everything one version of a model knows, and its way to the store and back."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.errors import InputError
from cala.estimator import CalaClassifier
from cala.estimator.state import classifier_state, restore_classifier
from cala.files import shown
from cala.model.seen import SeenPhotos
from cala.store import Content

UNKNOWN = "unknown"
GROWING = ("sums", "counts", "beta", "slope", "offset")  # tensors with a row per class


@dataclass(frozen=True)
class EncoderCard:
    """Which encoder a model needs: its URI, and a fingerprint to know it again by."""

    uri: str
    fingerprint: str
    dim: int
    tta: str = "none"


@dataclass(frozen=True)
class Knowledge:
    """One version. Nothing in it is changed in place: every change gives another one.

    reject : share of genuine photos that may be taken for unknown
    notes : what was said when the model was made, such as that its base is too small
    """

    classifier: CalaClassifier
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

    def grown(self, features: NDArray[np.float32], names: Sequence[str]) -> CalaClassifier:
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
        return replace(self, classifier=copy.copy(self.classifier).rename(old, check_name(new)))

    def check_known(self, name: str) -> None:
        if name not in self.names:
            few = ", ".join(shown(n) for n in self.names[:10])
            more = f", … ({len(self.names)} in all)" if len(self.names) > 10 else ""
            raise InputError(f"there is no class '{shown(name)}': there are {few}{more}")

    def to_content(self) -> Content:
        state = classifier_state(self.classifier)
        groups: dict[str, Any] = {"base": {}, "classes": {}, "photos": self.seen.tensors()}
        for name, tensor in state["tensors"].items():
            group = "classes" if name.rpartition(".")[2] in GROWING else "base"
            groups[group][name] = tensor
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

    @classmethod
    def from_content(cls, content: Content) -> Knowledge:
        meta, groups = content.meta, content.groups
        try:
            state = {**meta["classifier"], "tensors": {**groups["base"], **groups["classes"]}}
            return cls(
                classifier=restore_classifier(state),
                seen=SeenPhotos(**groups["photos"]),
                encoder=EncoderCard(**meta["encoder"]),
                reject=float(meta["reject"]),
                fakes=str(meta["fakes"]),
                notes=tuple(meta["notes"]),
            )
        except (KeyError, TypeError, RuntimeError) as error:
            raise InputError(f"the model does not hold what it should ({error})") from error


def check_name(name: Any) -> str:
    """A name that a class may have."""
    if not isinstance(name, str) or not name.strip() or name.endswith("\0"):
        raise InputError(f"a class cannot be called {name!r}: give it a name in letters")
    if name == UNKNOWN:
        raise InputError(
            f"a class cannot be called '{UNKNOWN}', which stands for photos that fit no class: "
            "choose another name"
        )
    return name
