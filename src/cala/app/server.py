"""The process: a socket, a server, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from cala.app.factory import create_app
from cala.app.photo_encoder import DECODER
from cala.app.settings import Settings, outward
from cala.app.setup import SetupApp
from cala.encoders import load_encoder
from cala.errors import InputError
from cala.files import reason, shown
from cala.model import Model
from cala.model.fitting import DEFAULT_ENCODER
from cala.store import Store

HEAD = 15.0  # seconds for the head of a request, and for the rest of one that was answered
IDLE = 30  # seconds that a connection may stay open without a request
CONNECTIONS = 1000
M_ARENA_MAX = -8  # from malloc.h
GRACE = 120  # seconds for what was accepted, once the end has come


class TimedProtocol(H11Protocol):
    """Uvicorn's own, which waits for ever for two things: the end of a head that has begun, and
    the end of a body that nobody reads because the request has been answered already.
    """

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch(True)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch(self.conn.their_state is h11.IDLE or self._unread())

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._unread():
            self._watch(True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch(False)
        super().connection_lost(exc)

    def _unread(self) -> bool:
        return self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY

    def _watch(self, waiting: bool) -> None:
        if waiting and self._late is None:
            self._late = self.loop.call_later(HEAD, self.timeout_keep_alive_handler)
        elif not waiting and self._late is not None:
            self._late.cancel()
            self._late = None


def run_service(model: Model, settings: Settings, port: int, say: Callable[[str], object]) -> None:
    """Serve a model until a signal comes; then answer what was accepted, and return."""
    listener = listen(settings.host, port)
    about = f"{shown(model.path)}: {len(model.classes)} classes"
    _serve(create_app(model, settings), listener, about, settings, say)


def run_setup(
    path: Path,
    settings: Settings,
    port: int,
    say: Callable[[str], object],
    encoder: str | None = None,
    device: str = "cpu",
    engine: str = "auto",
) -> None:
    """Serve a model that is not there yet: the page asks for photos of its first classes."""
    Store(path).check_free()
    if not path.absolute().parent.is_dir():
        fix = "create it, or choose another name"
        raise InputError(f"{shown(path.parent)} is not a directory", fix, field="model")
    encoder = encoder or DEFAULT_ENCODER
    load_encoder(encoder, device, engine=engine)  # to report a bad one before photos come
    listener = listen(settings.host, port)
    app = SetupApp(path, settings, encoder, device, engine)
    about = f"{shown(path)}: no model yet, the page asks for its first photos"
    _serve(app, listener, about, settings, say)


def _serve(
    app: ASGIApp,
    listener: socket.socket,
    about: str,
    settings: Settings,
    say: Callable[[str], object],
) -> None:
    _few_arenas()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # Paths may hold what people typed; the access log of the server would keep all of it.
    config = uvicorn.Config(
        app,
        http=TimedProtocol,
        log_config=None,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=IDLE,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=GRACE,
    )
    server = uvicorn.Server(config)
    link = f"/#token={settings.token}" if settings.share else ""
    say(f"{about}, at {address(listener)}{link} (Ctrl-C ends)")
    before = _quiet_signals()
    try:
        server.run(sockets=[listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        listener.close()
    _leave()


def _leave() -> None:
    """All that was acknowledged is on the disk, so a photo that takes for ever is left behind."""
    until = time.monotonic() + 2
    while any(thread.name.startswith(DECODER) for thread in threading.enumerate()):
        if time.monotonic() > until:
            sys.stdout.flush()
            os._exit(0)
        time.sleep(0.02)


def _few_arenas() -> None:
    """glibc keeps a heap for each thread, and photos of all sizes leave holes in every one."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 2)


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address; bound here so that a port that is taken is named."""
    try:
        family, kind, proto, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(128)  # from here on nobody is turned away
        return listener
    except (OSError, OverflowError, UnicodeError) as error:
        detail = f"cannot listen on {shown(host)}:{port} ({reason(error)})"
        raise InputError(detail, "choose another --port or --host", field="port") from error


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = outward()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _quiet_signals() -> dict[int, Any]:
    """The server hands signals on when it has ended, and by then they have done their work."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    numbers = (signal.SIGINT, signal.SIGTERM)
    return {number: signal.signal(number, lambda *_: None) for number in numbers}
