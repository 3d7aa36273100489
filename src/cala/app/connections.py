"""Connections: each has an end, and when there are too many the oldest idle ones make room."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from cala.app.problems import LOG

HEAD = 15.0  # seconds for the head of a request, and for the rest of one that was answered
TAKE = 60.0  # seconds for an answer to be taken
IDLE = 30  # seconds that a connection may stay open without a request
CONNECTIONS = 1000
SPARE = 8  # of these, for signs of life while all others are busy
ACCEPTED = 8  # at a time; as many again may be waiting to be closed
OWN_FILES = 72  # descriptors for all but connections: decoders, the model, uploads, the above
FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\r\n"


def most_connections() -> int:
    """As many as the process has descriptors for."""
    try:
        import resource
    except ImportError:  # not on Windows
        return CONNECTIONS
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(2 * SPARE, min(CONNECTIONS, soft - OWN_FILES)) if soft > 0 else CONNECTIONS


class TimedProtocol(H11Protocol):
    """Uvicorn's own, which waits for ever for three things: the end of a head that has begun, the
    end of a body that nobody reads because the request has been answered already, and a client
    that takes its answer. It also accepts whatever comes.
    """

    _late: asyncio.TimerHandle | None = None
    _untaken: asyncio.TimerHandle | None = None
    _since = 0.0  # when it began to wait for its client

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._since = self.loop.time()
        self._watch(True)
        most = most_connections()
        if len(self.connections) > most - SPARE:
            self._make_room(most)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch(self.conn.their_state is h11.IDLE or self._unread())

    def pause_writing(self) -> None:
        super().pause_writing()
        self._since = self.loop.time()
        if self._untaken is None:
            self._untaken = self.loop.call_later(TAKE, self.transport.abort)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since = self.loop.time()
        if self._unread():
            self._watch(True)
        self._forget_untaken()
        if self.transport.get_write_buffer_size():  # which would also outlive the connection
            self._untaken = self.loop.call_later(TAKE, self._check_taken)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch(False)
        self._forget_untaken()
        super().connection_lost(exc)

    def _unread(self) -> bool:
        return self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY

    def _watch(self, waiting: bool) -> None:
        if waiting and self._late is None:
            self._late = self.loop.call_later(HEAD, self.timeout_keep_alive_handler)
        elif not waiting and self._late is not None:
            self._late.cancel()
            self._late = None

    def _check_taken(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _forget_untaken(self) -> None:
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None

    def _waits(self) -> bool:
        """Whether nothing is done for it: it has no request, or does not take its answer."""
        return self.cycle is None or self.cycle.response_complete or self.flow.write_paused

    def _make_room(self, most: int) -> None:
        """Close those that have waited longest; a client that is served is never cut off."""
        own = [one for one in self.connections if isinstance(one, TimedProtocol)]
        open_ = [one for one in own if not one.transport.is_closing()]
        if len(open_) <= most - SPARE:  # the others are about to go
            return
        LOG.warning("too many connections are open (%d): closing idle ones", len(open_))
        idle = [one for one in open_ if one is not self and one._waits()]
        for one in sorted(idle, key=lambda one: one._since)[: max(1, most // 16)]:
            one.transport.abort()
        if not idle and len(open_) > most:
            self.transport.write(FULL)
            self.transport.close()


class OncePerSecond(logging.Filter):
    """One line a second of each kind, and how many were left out: a flood must not fill a disk."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[object, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.name, record.levelno, str(record.msg).partition("\n")[0][:80]
        now = time.monotonic()
        last, left_out = self._last.get(kind, (now - 1, 0))
        if now - last < 1:
            self._last[kind] = last, left_out + 1
            return False
        if len(self._last) > 1000:
            self._last.clear()
        self._last[kind] = now, 0
        if left_out:
            record.msg = f"{record.getMessage()} (and {left_out} more like it)"
            record.args = ()
        return True
