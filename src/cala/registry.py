"""One registry for everything that is looked up by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from cala.errors import UnknownNameError

T = TypeVar("T")


class Registry(Generic[T]):
    """Named things of one kind, each with a one-line summary.

    >>> colours = Registry("colour")
    >>> colours.register("red", "like a rose")(object()) is colours["red"]
    True
    >>> colours["rad"]
    Traceback (most recent call last):
    ...
    cala.errors.UnknownNameError: unknown colour 'rad': did you mean 'red'? Known: red
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}
        self._summaries: dict[str, str] = {}

    def register(self, name: str, summary: str) -> Callable[[T], T]:
        """Decorator that enters the decorated thing under `name`."""

        def enter(thing: T) -> T:
            if name in self._entries:
                raise UnknownNameError(f"{self.kind} '{name}' is registered twice")
            self._entries[name] = thing
            self._summaries[name] = summary
            return thing

        return enter

    def __getitem__(self, name: str) -> T:
        try:
            return self._entries[name]
        except (KeyError, TypeError):
            raise UnknownNameError(unknown(self.kind, name, self._entries)) from None

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def summary(self, name: str) -> str:
        """The one line shown by listings."""
        self[name]
        return self._summaries[name]


def unknown(kind: str, name: object, known: object) -> str:
    """The message for a name outside a closed set, with the nearest known one."""
    names = [str(k) for k in known]  # type: ignore[attr-defined]
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"unknown {kind} {name!r}: {hint}Known: {', '.join(names)}"


def check_choice(kind: str, name: object, known: object) -> None:
    """Raise `UnknownNameError` unless `name` is one of `known`."""
    # A list cannot be looked up and an array cannot be compared; neither is a name.
    if not (name is None or isinstance(name, str)) or name not in known:  # type: ignore[operator]
        raise UnknownNameError(unknown(kind, name, known))
