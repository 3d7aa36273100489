"""One registry for everything that is looked up by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Generic, TypeVar

from cala.errors import UnknownNameError
from cala.extras import needs

T = TypeVar("T")


class Registry(Generic[T]):
    """Named things of one kind, each with a one-line summary.

    An entry may be a string "module:attribute", which is imported when it is first asked for, so
    that listing imports nothing. With a `group`, installed packages add entries through entry
    points of that group.

    >>> colours = Registry("colour")
    >>> colours.register("red", "like a rose")(object()) is colours["red"]
    True
    >>> colours.add("pi", "math:pi", "lazily")
    >>> colours["pi"]
    3.14159...
    >>> colours["rad"]
    Traceback (most recent call last):
    ...
    cala.errors.UnknownNameError: unknown colour 'rad': did you mean 'red'? Known: red, pi
    """

    def __init__(self, kind: str, *, group: str | None = None) -> None:
        self.kind = kind
        self._group = group
        self._own: dict[str, Any] = {}
        self._summaries: dict[str, str] = {}
        self._extras: dict[str, str | None] = {}

    @property
    def _entries(self) -> dict[str, Any]:
        """All entries, after those of installed packages have joined."""
        if self._group is not None:
            from importlib.metadata import entry_points

            group, self._group = self._group, None
            for point in sorted(entry_points(group=group), key=lambda p: p.name):
                if point.name not in self._own:
                    package = point.dist.name if point.dist is not None else "another package"
                    self.add(point.name, point.value, f"from {package}")
        return self._own

    def register(self, name: str, summary: str) -> Callable[[T], T]:
        """Decorator that enters the decorated thing under `name`."""

        def enter(thing: T) -> T:
            self.add(name, thing, summary)
            return thing

        return enter

    def add(self, name: str, thing: T | str, summary: str, extra: str | None = None) -> None:
        """Enter a thing, or "module:attribute" for one that is imported when it is needed.

        extra : the extra of this package that has the libraries which that module imports
        """
        if name in self._own:
            detail = f"{self.kind} '{name}' is registered twice"
            raise UnknownNameError(detail, "choose another name", code="registered_twice")
        self._own[name] = thing
        self._summaries[name] = summary
        self._extras[name] = extra

    def __getitem__(self, name: str) -> T:
        check_choice(self.kind, name, self._entries)
        thing = self._entries[name]
        if isinstance(thing, str):
            module, _, attribute = thing.partition(":")
            with needs(self._extras[name], what=f"{self.kind} {name}"):
                thing = self._own[name] = getattr(import_module(module), attribute)
        return thing

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def summary(self, name: str) -> str:
        """The one line shown by listings."""
        check_choice(self.kind, name, self._entries)
        return self._summaries[name]


def unknown(kind: str, name: object, known: object, field: str | None = None) -> UnknownNameError:
    """The error for a name outside a closed set; its fix has the nearest known one."""
    names = [str(k) for k in known]  # type: ignore[attr-defined]
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    fix = f"{hint}Known: {', '.join(names)}"
    return UnknownNameError(f"unknown {kind} {name!r}", fix, field=field or kind.replace(" ", "_"))


def check_choice(kind: str, name: object, known: object, field: str | None = None) -> None:
    """Raise `UnknownNameError` unless `name` is one of `known`."""
    # A list cannot be looked up and an array cannot be compared; neither is a name.
    if not (name is None or isinstance(name, str)) or name not in known:  # type: ignore[operator]
        raise unknown(kind, name, known, field)
