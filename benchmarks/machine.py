"""The machine, as every table names it."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import torch


def machine() -> str:
    """Processor, threads and versions, in one line."""
    return (
        f"{processor()}, {os.cpu_count()} threads ({torch.get_num_threads()} used by torch), "
        f"Python {platform.python_version()}, torch {torch.__version__}"
    )


def processor() -> str:
    try:
        found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.machine()
