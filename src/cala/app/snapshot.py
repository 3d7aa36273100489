"""One version of the model, as all readers see it until the next one takes its place."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.app.problems import Problem
from cala.core.cala import normalise
from cala.files import shown
from cala.model.estimate import estimate
from cala.model.overview import class_rows, relatives
from cala.model.thumbnails import FOLDER
from cala.model.version import ModelVersion
from cala.store import Present, Store

TRIES = 20
PICTURES = 5  # small copies that a class is listed with, at most


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Nothing in it is ever changed, so a request that holds one sees one state.

    pictures : digests of photos with a small copy
    """

    model: ModelVersion
    present: Present
    pictures: frozenset[str]

    @classmethod
    def read(cls, store: Store) -> Snapshot:
        """The present version on disk."""
        for _ in range(TRIES):
            present, model = store.present(), ModelVersion.from_content(store.read())
            if store.version() == present.version:
                return cls(model, present, pictures(store))
        raise Problem("busy", "other processes keep changing the model", "try again")

    @property
    def version(self) -> int:
        return self.present.version

    @property
    def journal(self) -> tuple[dict[str, Any], ...]:
        """Every change, oldest first."""
        return self.present.journal

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """A name for each class that no other class ever has, whatever is renamed or undone.

        Numbers alone would be given again after an undo, so the first photo is part of it, and the
        version that learned it.
        """
        numbers = self.model.classifier.head_.classes
        first = {column: digests[0] for column, digests in self.photos.items() if digests}
        learned: dict[str, str] = {}
        for entry in (entry for entry in self.journal if entry["action"] == "add"):
            learned.update(dict.fromkeys(entry.get("sha256", ()), f"-{entry['version']}"))
        parts = ((n, first.get(c, "")) for c, n in enumerate(numbers))
        return tuple(f"{n}-{digest[:12]}{learned.get(digest, '')}" for n, digest in parts)

    @cached_property
    def columns(self) -> dict[str, int]:
        return {id: column for column, id in enumerate(self.ids)}

    @cached_property
    def names(self) -> list[str]:
        return self.model.names

    @cached_property
    def column_of(self) -> dict[str, int]:
        """By name."""
        return {name: column for column, name in enumerate(self.names)}

    def column(self, id: str, field: str = "id") -> int:
        found = self.columns.get(id)
        if found is None:
            detail = f"there is no class with the id '{shown(id)[:100]}'"
            fix = "GET /v1/classes lists the classes and their ids"
            raise Problem("no_such_class", detail, fix, field=field)
        return found

    @cached_property
    def photos(self) -> dict[int, list[str]]:
        """Digests by column, in order of arrival."""
        numbers = {n: c for c, n in enumerate(self.model.classifier.head_.classes)}
        found: dict[int, list[str]] = {column: [] for column in numbers.values()}
        for digest, owner in self.model.photos.owners().items():
            if owner in numbers:
                found[numbers[owner]].append(digest.hex())
        return found

    @cached_property
    def digests(self) -> frozenset[str]:
        """Of all photos that its classes were learned from."""
        return frozenset(digest.hex() for digest in self.model.photos.owners())

    @cached_property
    def kept_rows(self) -> dict[str, NDArray[np.float32]]:
        """Embeddings (d,) of learned photos by their digests, as far as they are kept."""
        kept = self.model.kept
        return {key.hex(): row for key, row in zip(kept.digests(), kept.rows, strict=True)}

    @cached_property
    def kept_unit(self) -> tuple[NDArray[Any], list[tuple[str, int]]]:
        """Learned photos that can be shown: (n, d) of unit length, digests and columns."""
        kept, columns = self.model.kept, self.model.columns_kept().tolist()
        shown = [(key.hex(), column) for key, column in zip(kept.digests(), columns, strict=True)]
        place = [row for row, (digest, _) in enumerate(shown) if digest in self.pictures]
        return unit_rows(self.model, kept.rows[place]), [shown[row] for row in place]

    @cached_property
    def estimate(self) -> dict[str, Any]:
        return estimate(self.model, quick=True).to_json()

    @cached_property
    def faces(self) -> dict[int, list[str]]:
        """By column, digests of a few photos that have a small copy."""
        return {
            column: [digest for digest in digests if digest in self.pictures][:PICTURES]
            for column, digests in self.photos.items()
        }

    def face(self, column: int) -> str | None:
        return next(iter(self.faces[column]), None)

    @cached_property
    def classes(self) -> list[dict[str, Any]]:
        """As the service lists them, in order of arrival."""
        rows = class_rows(self.model)
        for column, row in enumerate(rows):
            near = self.column_of[row["closest"]["name"]]
            row["closest"] = self.near(near, row["closest"]["cosine"])
            row.update(id=self.ids[column], order=column, thumbnails=self.faces[column])
        return rows

    def near(self, column: int, cosine: float) -> dict[str, Any]:
        return {
            "id": self.ids[column],
            "name": self.names[column],
            "kind": self.model.kind_at(column),
            "cosine": cosine,
            "thumbnail": self.face(column),
        }

    def relatives(self, column: int) -> list[dict[str, Any]]:
        return [self.near(other, cosine) for other, cosine in relatives(self.model, column)]

    def found(self, search: str) -> list[dict[str, Any]]:
        """Classes whose names hold these words, whatever their case."""
        words = search.casefold().split()
        return [row for row in self.classes if all(w in row["name"].casefold() for w in words)]


def unit_rows(model: ModelVersion, rows: NDArray[Any]) -> NDArray[Any]:
    """Embeddings (n, d) as the classifier compares them, of unit length."""
    head = model.classifier.head_
    return normalise(head.embed(rows.astype(head.dtype, copy=False))[:, : head.dim])


def pictures(store: Store) -> frozenset[str]:
    """Digests of the photos that have a small copy."""
    try:
        return frozenset(name[:-4] for name in os.listdir(store.path / FOLDER))
    except OSError:
        return frozenset()
