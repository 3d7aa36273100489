"""Progress of long work on images.

Images are read far below the commands that start it, so a listener is set around the whole work
instead of being passed down through every layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

A = TypeVar("A")

#: Called with how many items are done, and the total.
Advance = Callable[[int, int], None]
#: Called with what is being done, how many items are done, and the total.
Listener = Callable[[str, int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def progress_to(listener: Listener) -> Iterator[None]:
    """Send the progress of everything inside the block to `listener`.

    >>> with progress_to(lambda what, done, total: print(what, done, "of", total)):
    ...     _ = list(track("reading", ["a", "b"], 2))
    reading 1 of 2
    reading 2 of 2
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report_progress(what: str, done: int, total: int) -> None:
    """Tell the listener, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(what, done, total)


def track(what: str, items: Iterable[A], total: int) -> Iterator[A]:
    """Yield `items` and report each."""
    for done, item in enumerate(items, start=1):
        report_progress(what, done, total)
        yield item
