"""Progress of long work on images, for whoever wants to show it.

Reading a set happens deep below the commands that start it; a watcher is set around the whole
instead of being handed down through every layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

A = TypeVar("A")

#: Called with what is done, how many are done, and of how many.
Watcher = Callable[[str, int, int], None]

_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Inside the block `watcher` hears of every item that `watched` lets through.

    >>> with watching(lambda what, done, total: print(what, done, "of", total)):
    ...     _ = list(watched("reading", ["a", "b"], 2))
    reading 1 of 2
    reading 2 of 2
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def announce(what: str, done: int, total: int) -> None:
    """Tell the watcher, where there is one."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher(what, done, total)


def watched(what: str, items: Iterable[A], total: int) -> Iterator[A]:
    """`items`, announced one by one as they come."""
    watcher = _watcher.get()
    for done, item in enumerate(items, start=1):
        if watcher is not None:
            watcher(what, done, total)
        yield item
