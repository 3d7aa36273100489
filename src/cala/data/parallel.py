"""Work on files in threads: order kept, look-ahead bounded."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def workers() -> int:
    """Decoding releases the interpreter lock, so a thread per processor keeps all of them busy."""
    return min(16, os.cpu_count() or 1)


def in_order(work: Callable[[A], B], items: Iterable[A], ahead: int | None = None) -> Iterator[B]:
    """`map(work, items)` in threads; at most `ahead` results wait in memory.

    By default that is a few per thread, since a single photo may take hundreds of megabytes.

    >>> list(in_order(abs, [-3, 2, -1]))
    [3, 2, 1]
    """
    limit = 2 * workers() + 2 if ahead is None else ahead
    pool = ThreadPoolExecutor(workers())
    waiting: deque[Future[B]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= limit:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
