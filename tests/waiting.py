"""Waiting for what must happen, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

GENEROUS = 300.0  # seconds; only a hang takes so long


def wait_for(happened: Callable[[], object], seconds: float = GENEROUS) -> None:
    """Return as soon as `happened()` is true; fail if it never is."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
