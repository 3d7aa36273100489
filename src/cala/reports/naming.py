"""What a method's name says: the grammar HOST+ADAPTER and its short forms."""

from __future__ import annotations

#: Hosts of adapters that are named alone.
SHORT = {
    "la": "nearest-mean",
    "cala": "nearest-mean",
    "cala-literal": "nearest-mean",
    "cala-plus": "calibrated-mean",
    "auto": "nearest-mean",
}


def adapter_of(method: str) -> str | None:
    """The adapter that a name ends in.

    >>> adapter_of("cala"), adapter_of("teen+la"), adapter_of("teen")
    ('cala', 'la', None)
    """
    name = method.rpartition(": ")[2]
    return name.rpartition("+")[2] if "+" in name or name in SHORT else None


def host_of(method: str) -> str | None:
    """The same method without its adapter; None if it has none.

    >>> host_of("teen+cala"), host_of("cala"), host_of("teen")
    ('teen', 'nearest-mean', None)
    """
    name = method.rpartition(": ")[2]
    return name.rpartition("+")[0] or SHORT.get(name)


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
