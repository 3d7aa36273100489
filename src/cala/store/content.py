"""What one version of a model holds, and what the journal says about the step that led to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from numpy.typing import NDArray

from cala.version import __version__

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Content:
    """A model as the store sees it: JSON values, and arrays in groups.

    meta : for people to read as well as for the program
    groups : a group that a change leaves alone is not written again
    """

    meta: dict[str, Any]
    groups: dict[str, Arrays]


@dataclass(frozen=True)
class Entry:
    """One line of the journal.

    action : fit, add, forget, rename, tune, undo, redo
    details : such as {"classes": {"kingfisher": 5}}
    """

    action: str
    details: dict[str, Any] = field(default_factory=dict)

    def dated(self, number: int) -> dict[str, Any]:
        """As the journal keeps it."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return {
            "version": number,
            "time": now,
            "action": self.action,
            **self.details,
            "cala": __version__,
        }


@dataclass(frozen=True)
class Present:
    """What a store says of its present version without its content.

    journal : every change, oldest first; undo, redo : how many steps are possible
    """

    version: int
    journal: tuple[dict[str, Any], ...]
    undo: int
    redo: int
