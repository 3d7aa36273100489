"""Memory tricks, private to the package: arrays that only ever grow."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class AppendOnly:
    """An append-only array (n, ...): appending costs what is appended, not what is there.

    `appended` returns a longer one and leaves this one as it was. Both look at the same memory:
    the newest copy writes behind its own end, where no older copy looks; a copy that is no
    longer the newest moves to memory of its own first.

    >>> a = AppendOnly(np.zeros((2, 3)))
    >>> b, c = a.appended(np.ones((1, 3))), a.appended(np.full((1, 3), 2.0))
    >>> len(a.rows), float(b.rows[-1, 0]), float(c.rows[-1, 0])
    (2, 1.0, 2.0)
    """

    def __init__(self, rows: Array) -> None:
        self._buffer = _Buffer(rows, len(rows))
        self.rows = rows

    def appended(self, new: Array) -> AppendOnly:
        """These rows followed by `new` (m, ...)."""
        start, end = len(self.rows), len(self.rows) + len(new)
        buffer = self._buffer
        with buffer.lock:
            if buffer.used != start or end > len(buffer.memory):
                spare = max(end // 4, 16)
                memory = np.empty((end + spare, *self.rows.shape[1:]), self.rows.dtype)
                memory[:start] = self.rows
                buffer = _Buffer(memory, end)
            buffer.memory[start:end] = new
            buffer.used = end
        longer = AppendOnly.__new__(AppendOnly)
        longer._buffer, longer.rows = buffer, buffer.memory[:end]
        return longer

    def __reduce__(self) -> tuple[Any, ...]:
        return AppendOnly, (self.rows.copy(),)  # without the spare memory and the lock


class _Buffer:
    """Shared memory, how much of it is in use, and who may write next."""

    def __init__(self, memory: Array, used: int) -> None:
        self.memory = memory
        self.used = used
        self.lock = threading.Lock()
