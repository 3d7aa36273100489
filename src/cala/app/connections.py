"""Connections that dawdle: the head of a request has to arrive within a time, like its body."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD = 15.0  # seconds for the head of a request, from the first byte of it or of the connection


class Impatient(H11Protocol):
    """Uvicorn's own, which waits for ever for the end of a head that has begun."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._late is None:
            self._late = self.loop.call_later(HEAD, self.timeout_keep_alive_handler)

    def _unwatch(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
