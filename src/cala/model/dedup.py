"""Labelled photos ready to be learned: each once, under one name only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.data.images import ImageSplit
from cala.errors import InputError
from cala.files import shown
from cala.store import JournalEntry

HASHES_IN_JOURNAL = 200


@dataclass(frozen=True)
class NewPhotos:
    """Photos that a model has not learned from yet.

    rows : (m,) of those given; digests, names : m of each; duplicates : how many were left out
    """

    rows: NDArray[np.int64]
    digests: tuple[bytes, ...]
    names: tuple[str, ...]
    duplicates: int

    def entry(self, action: str, counts: dict[str, int]) -> JournalEntry:
        """What the journal says of learning them: how many of each class, and which."""
        details: dict[str, Any] = {"classes": counts}
        if len(self.digests) <= HASHES_IN_JOURNAL:  # more are in the group `photos` only
            details["sha256"] = [digest.hex() for digest in self.digests]
        if self.duplicates:
            details["again"] = self.duplicates
        return JournalEntry(action, details)


def new_photos(
    files: Sequence[str],
    digests: Sequence[bytes],
    names: Sequence[str],
    owner: Callable[[bytes], str | None] = lambda digest: None,
) -> NewPhotos:
    """Leave out photos that are there twice; a photo under two names is an error.

    files : for messages; names : the class of each; owner : which class has a digest already
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
                f"{shown(files[row])} is labelled '{shown(name)}', but the same photo is already "
                f"'{shown(before)}'",
                "remove it from one of them",
                code="two_labels",
            )
    kept = tuple(digests[row] for row in rows), tuple(names[row] for row in rows)
    return NewPhotos(np.array(rows, dtype=np.int64), *kept, len(files) - len(rows))


def digests_of(split: ImageSplit) -> list[bytes]:
    """SHA-256 of every photo; one that cannot be read is named."""
    found = split.digests()
    for name, digest in zip(split.names, found, strict=True):
        if len(digest) != 64:
            raise InputError(
                f"{shown(name)} cannot be read", "check its permissions, or leave it out"
            )
    return [bytes.fromhex(digest) for digest in found]
