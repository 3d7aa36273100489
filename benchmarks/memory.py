"""The largest resident memory of this process. A script may limit memory before cala is loaded."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path


def peak() -> int:
    """In bytes, so far.

    On Linux not by `getrusage`, which tells of a process what its parent had, where that was more.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
