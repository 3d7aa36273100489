"""Labelled photos ready to be learned from: readable, each once, under one name only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.data.images import ImageSplit
from cala.errors import InputError
from cala.files import shown
from cala.store import Entry

HASHES_IN_JOURNAL = 200

Names = Sequence[str]


@dataclass(frozen=True)
class Fresh:
    """Photos that a model has not learned from yet.

    rows : (m,) of the split; digests, names : m of each; again : how many were known already
    """

    rows: NDArray[np.int64]
    digests: tuple[bytes, ...]
    names: tuple[str, ...]
    again: int


def fresh_photos(
    files: Names, digests: Sequence[bytes], names: Names, owner: Callable[[bytes], str | None]
) -> Fresh:
    """Leave out photos that are there twice; a photo under two names is an error.

    files : for messages; names : the class of each; owner : who has a digest already
    """
    taken: dict[bytes, str] = {}
    rows: list[int] = []
    for row, (digest, name) in enumerate(zip(digests, names, strict=True)):
        before = taken.get(digest) or owner(digest)
        if before is None:
            taken[digest] = name
            rows.append(row)
        elif before != name:
            raise InputError(
                f"{shown(files[row])} is to be '{shown(name)}', but the same photo is "
                f"'{shown(before)}' already: leave it out of one of them"
            )
    return Fresh(
        np.array(rows, dtype=np.int64),
        tuple(digests[row] for row in rows),
        tuple(names[row] for row in rows),
        len(files) - len(rows),
    )


def journal_entry(
    action: str, photos: dict[str, int], digests: Sequence[bytes], again: int = 0
) -> Entry:
    """What the journal says of photos that were learned: how many of each class, and which."""
    details: dict[str, Any] = {"classes": photos}
    if len(digests) <= HASHES_IN_JOURNAL:  # those of more photos are in the group `photos` only
        details["sha256"] = [digest.hex() for digest in digests]
    if again:
        details["again"] = again
    return Entry(action, details)


def digests_of(split: ImageSplit) -> list[bytes]:
    """SHA-256 of every photo; one that cannot be read is named."""
    found = split.digests()
    for name, digest in zip(split.names, found, strict=True):
        if len(digest) != 64:
            raise InputError(f"{shown(name)} cannot be read: look at its rights, or leave it out")
    return [bytes.fromhex(digest) for digest in found]
