"""A part of a report: words, tables and pictures under one heading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from cala.files import reason

if TYPE_CHECKING:
    from cala.reports.figures.picture import Picture
    from cala.reports.images import Example
    from cala.reports.table import Table

T = TypeVar("T")


@dataclass
class Section:
    """anchor : its id in the page; folded : tables that are closed at first"""

    anchor: str
    title: str
    words: list[str] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    folded: list[Table] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)

    def show(self, picture: Picture | None) -> None:
        if picture is not None:
            self.pictures.append(picture)

    @property
    def empty(self) -> bool:
        return not (self.words or self.pictures or self.tables or self.folded)


def attempt(what: str, make: Callable[[], T], notes: list[str]) -> T | None:
    """`make()`, or a note where damaged records or artifacts do not allow it."""
    try:
        return make()
    except Exception as error:  # one figure that fails must not take the others with it
        notes.append(f"{what} could not be made ({type(error).__name__}: {reason(error)}).")
        return None
