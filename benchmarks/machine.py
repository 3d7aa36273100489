"""The machine, as every table names it, and how many of its threads are used."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from threadpoolctl import threadpool_info, threadpool_limits


def use_threads(count: int) -> None:
    """For NumPy from now on, and for torch where it is loaded."""
    threadpool_limits(count)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


def machine() -> str:
    """Processor, threads and versions, in one line."""
    used = max((pool["num_threads"] for pool in threadpool_info()), default=1)
    torch = f"torch {version('torch')}" if find_spec("torch") is not None else "no torch"
    return (
        f"{processor()}, {os.cpu_count()} threads ({used} used), "
        f"Python {platform.python_version()}, NumPy {version('numpy')}, {torch}"
    )


def processor() -> str:
    try:
        found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.machine()
