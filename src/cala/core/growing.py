"""Rows that only ever grow, in memory that copies share."""

from __future__ import annotations

import threading
from typing import Any

from torch import Tensor


class GrowingRows:
    """An append-only array (n, ...): appending costs what is appended, not what is there.

    `appended` returns a longer one and leaves this one as it was. Both look at the same memory:
    the newest copy writes behind its own end, where no older copy looks; a copy that is no
    longer the newest moves to memory of its own first.

    >>> import torch
    >>> a = GrowingRows(torch.zeros(2, 3))
    >>> b, c = a.appended(torch.ones(1, 3)), a.appended(torch.full((1, 3), 2.0))
    >>> len(a.rows), b.rows[-1, 0].item(), c.rows[-1, 0].item()
    (2, 1.0, 2.0)
    """

    def __init__(self, rows: Tensor) -> None:
        self._store = _Store(rows, len(rows))
        self.rows = rows

    def appended(self, new: Tensor) -> GrowingRows:
        """These rows followed by `new` (m, ...)."""
        start, end = len(self.rows), len(self.rows) + len(new)
        store = self._store
        with store.lock:
            if store.used != start or end > len(store.memory):
                spare = max(end // 4, 16)
                store = _Store(self.rows.new_empty(end + spare, *self.rows.shape[1:]), end)
                store.memory[:start] = self.rows
            store.memory[start:end] = new
            store.used = end
        return self._view(store, end)

    @classmethod
    def _view(cls, store: _Store, end: int) -> GrowingRows:
        longer = cls.__new__(cls)
        longer._store, longer.rows = store, store.memory[:end]
        return longer

    def __reduce__(self) -> tuple[Any, ...]:
        return GrowingRows, (self.rows.clone(),)  # without the spare memory and the lock


class _Store:
    """Shared memory, how much of it is in use, and who may write next."""

    def __init__(self, memory: Tensor, used: int) -> None:
        self.memory = memory
        self.used = used
        self.lock = threading.Lock()
