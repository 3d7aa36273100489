"""How many threads the bench computes with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]


@contextmanager
def one_thread() -> Iterator[None]:
    """The arrays are small: threads cost more than they bring, and change the order of sums."""
    torch = sys.modules.get("torch")  # there if a method runs a network
    before = 1 if torch is None else torch.get_num_threads()
    with threadpool_limits(1):
        try:
            if torch is not None:
                torch.set_num_threads(1)
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)
