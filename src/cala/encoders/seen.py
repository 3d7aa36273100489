"""Classes that trained an encoder: to it they are not new, whatever a protocol calls them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cala.errors import InputError
from cala.files import shown

if TYPE_CHECKING:
    from cala.data.images import ImageSet
    from cala.encoders.base import Encoder

SHOWN = 5  # names in a message


def seen_classes(images: ImageSet, encoder: Encoder) -> tuple[str, ...]:
    """Classes of a set that trained the encoder, as far as it remembers.

    By name where it was trained on this kind of set, and by the images that it remembers, for
    classes that were renamed. A copy of an image of another training class does not count.
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
    """Classes that trained the encoder of an embeddings file, as far as the file tells."""
    given = provenance or {}
    stated = given.get("seen")
    if isinstance(stated, list):
        return tuple(str(name) for name in stated)
    return _named(given.get("about"), given.get("dataset"))


def seen_among(novel: Sequence[str], seen: Sequence[str]) -> str:
    """What to say of novel classes that trained the encoder; empty if none did."""
    both = [shown(name) for name in novel if name in set(seen)]
    if not both:
        return ""
    more = f" and {len(both) - SHOWN} more" if len(both) > SHOWN else ""
    return f"{len(both)} novel classes trained the encoder ({', '.join(both[:SHOWN])}{more})"


def check_novel(novel: Sequence[str], seen: Sequence[str]) -> None:
    """Raise if classes that trained the encoder are to arrive as new ones."""
    said = seen_among(novel, seen)
    if said:
        raise InputError(
            f"{said}, so results on them would be too good: make them base classes with --base, "
            "take an encoder that has not seen them, or go on all the same with --allow-seen"
        )


def _named(about: Any, dataset: Any) -> tuple[str, ...]:
    """Training classes that an encoder of `cala train` states, if it is of this kind of set."""
    if not isinstance(about, dict) or about.get("dataset") != dataset:
        return ()
    classes = about.get("classes")
    return tuple(str(name) for name in classes) if isinstance(classes, list) else ()
