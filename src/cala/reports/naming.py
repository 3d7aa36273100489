"""What a method's name says: the grammar HOST+ADAPTER and its short forms."""

from __future__ import annotations

ADAPTERS = ("la", "cala", "cala-plus")
SHORT = {"la": "nearest-mean", "cala": "nearest-mean", "cala-plus": "calibrated-mean"}


def adapter_of(method: str) -> str | None:
    """The adapter that a name ends in.

    >>> adapter_of("cala"), adapter_of("teen+la"), adapter_of("teen")
    ('cala', 'la', None)
    """
    last = method.rpartition(": ")[2].rpartition("+")[2]
    return last if last in ADAPTERS else None


def host_of(method: str) -> str | None:
    """The same method without its adapter; None if it has none.

    >>> host_of("teen+cala"), host_of("cala"), host_of("teen")
    ('teen', 'nearest-mean', None)
    """
    name = method.rpartition(": ")[2]
    host, plus, adapter = name.rpartition("+")
    if plus:
        return host if adapter in ADAPTERS else None
    return SHORT.get(name)


def clipped(name: str, most: int = 24) -> str:
    """A name short enough for a figure.

    >>> clipped("a class with quite a long name", 12)
    'a class wit…'
    """
    return name if len(name) <= most else name[: most - 1].rstrip() + "…"


def some(sessions: list[int], most: int = 6) -> str:
    """Sessions by number, the first few of many.

    >>> some([2]), some([0, 1]), some([1, 2, 3], most=2)
    ('session 2', 'sessions 0, 1', 'sessions 1, 2, …')
    """
    named = ", ".join(map(str, sessions[:most])) + (", …" if len(sessions) > most else "")
    return f"session{'s' * (len(sessions) > 1)} {named}"
