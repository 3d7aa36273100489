"""Leakage: classes and images that trained an encoder, which must not be called new or test it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cala.errors import InputError
from cala.files import counted, preview, shown

if TYPE_CHECKING:
    from cala.data.images import ImageSet, ImageSplit
    from cala.encoders.base import Encoder


def seen_classes(images: ImageSet, encoder: Encoder) -> tuple[str, ...]:
    """Return the classes of a set that trained the encoder, as far as it remembers.

    They are known by name if it was trained on this kind of set, and by the images that it
    remembers, for classes that were renamed. A copy of an image of another training class does not
    count.
    """
    if encoder.pretrained:
        return ()
    found = set(_named(encoder.about, images.name))
    if encoder.trained:
        names = [images.classes[label] for label in images.train.labels]
        pairs = list(zip(names, (digest[:32] for digest in images.train.digests()), strict=True))
        known = {digest for name, digest in pairs if name in found}
        found |= {name for name, digest in pairs if digest in encoder.trained - known}
    return tuple(name for name in images.classes if name in found)


def stated_classes(provenance: dict[str, Any] | None) -> tuple[str, ...]:
    """Return the classes that trained the encoder of an embeddings file, if the file names them."""
    given = provenance or {}
    stated = given.get("seen")
    if isinstance(stated, list):
        return tuple(str(name) for name in stated)
    return _named(given.get("about"), given.get("dataset"))


def _named(about: Any, dataset: Any) -> tuple[str, ...]:
    """Return the training classes that an encoder of `cala train` states for this kind of set."""
    if not isinstance(about, dict) or about.get("dataset") != dataset:
        return ()
    classes = about.get("classes")
    return tuple(str(name) for name in classes) if isinstance(classes, list) else ()


def seen_among(novel: Sequence[str], seen: Sequence[str]) -> str:
    """Describe the novel classes that trained the encoder; empty if none did."""
    both = [name for name in novel if name in set(seen)]
    which = f"{counted(len(both), 'novel class')} ({preview(both, 5)})"
    return f"the encoder was trained on {which}" if both else ""


def check_novel(novel: Sequence[str], seen: Sequence[str]) -> None:
    """Raise if classes that trained the encoder are to arrive as new ones."""
    both = seen_among(novel, seen)
    if both:
        raise InputError(
            f"{both}, so results on them would be too good",
            "make them base classes with --base, use an encoder that has not seen them, or pass "
            "--allow-seen",
            field="base",
            code="leakage",
        )


def check_fair(
    images: ImageSet, encoder: Encoder, base: Sequence[int], novel: Sequence[int] | None
) -> tuple[str, ...]:
    """Return the classes that trained the encoder; raise if results would be too good.

    base, novel : as for `cala.encoders.encode.encode_set`
    """
    if not len(images.train):
        raise InputError(f"{images.name} has no training image to encode", code="no_images")
    check_unseen(images.test, encoder)
    seen = seen_classes(images, encoder)
    if novel is None:
        novel = sorted(set(range(len(images.classes))) - set(base))
    check_novel([images.classes[label] for label in novel], seen)
    return seen


def check_unseen(test: ImageSplit, encoder: Encoder) -> None:
    """Raise if images that trained the encoder are to test it."""
    if not encoder.trained:
        return
    digests = zip(test.names, test.digests(), strict=True)
    seen = [name for name, digest in digests if digest[:32] in encoder.trained]
    if seen:
        raise InputError(
            f"the encoder {encoder.name} was trained on {len(seen)} or more test images, such as "
            f"{shown(seen[0])}, so results would be too good",
            "keep test images in test/, or give `cala train` the same --test",
            code="leakage",
        )


def held_out(train: ImageSplit, base: Sequence[int], encoder: Encoder) -> NDArray[np.bool_] | None:
    """Mark the base rows that the encoder was not trained on: (n,); None if that is not known."""
    is_base = np.isin(train.labels, list(base))
    if encoder.pretrained:
        return is_base
    if not encoder.holdout:
        return None
    rows = np.flatnonzero(is_base)
    held = np.zeros(len(train), dtype=bool)
    held[rows] = [digest in encoder.holdout for digest in train.digests(rows)]
    return held if held.any() else None
