"""Memory tricks, private to the package."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from cala.core.rows import Array, Features

KEPT_NUMBERS = 2**24  # of embedded rows: 64 MB in single precision


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

    @classmethod
    def of(cls, rows: Array | AppendOnly) -> AppendOnly:
        """Rows that may be append-only already."""
        return rows if isinstance(rows, AppendOnly) else cls(rows)

    def appended(self, new: Array) -> AppendOnly:
        """These rows followed by `new` (m, ...)."""
        start, end = len(self.rows), len(self.rows) + len(new)
        buffer = self._buffer
        with buffer.lock:
            full = buffer.used != start or end > len(buffer.memory)
            if full or not buffer.memory.flags.writeable:  # such as a memory-mapped file
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


def draw_few_pairs(n_base: int, limit: int, rng: np.random.Generator) -> Array:
    """`cala.core.fakes.draw_pairs` in memory that grows with `limit` only."""
    codes = np.empty(0, dtype=np.int64)
    while len(codes) < limit:
        drawn = np.sort(rng.integers(n_base, size=(2 * limit, 2)), axis=1)
        distinct = drawn[drawn[:, 0] != drawn[:, 1]]
        codes = np.concatenate([codes, distinct[:, 0] * n_base + distinct[:, 1]])
        codes = codes[np.sort(np.unique(codes, return_index=True)[1])]
    return np.column_stack(np.divmod(codes[:limit], n_base))


def embedded_rows(
    embed: Callable[[Array], Array], features: Features, rows: Array
) -> Callable[[Array], Array]:
    """Some rows (m,) of features, embedded: a function from places among them (k,) to (k, e).

    All are embedded at once, or, where that would be a second copy of a large set, as they are
    asked for.
    """
    width = embed(features[rows[:1]]).shape[1] if len(rows) else 0
    if len(rows) * width > KEPT_NUMBERS:
        return lambda places: embed(features[rows[places]])
    unit = embed(features[rows])
    return lambda places: unit[places]
