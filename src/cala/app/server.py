"""The process: a socket, a server, and an end that loses nothing."""

from __future__ import annotations

import ctypes
import logging
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from cala.app.connections import ACCEPTED, IDLE, OncePerSecond, TimedProtocol
from cala.app.decoders import DECODER_PROCESSES
from cala.app.factory import create_app
from cala.app.settings import Settings, outward
from cala.app.setup import SetupApp
from cala.encoders import load_encoder
from cala.errors import InputError
from cala.files import reason, shown
from cala.model import Model
from cala.model.fitting import DEFAULT_ENCODER
from cala.store import Store

QUEUE = 512  # connections that the system keeps until they are accepted
M_ARENA_MAX = -8  # from malloc.h
GRACE = 120  # seconds for what was accepted, once the end has come


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
    seldom = OncePerSecond()
    for handler in logging.getLogger().handlers:
        handler.addFilter(seldom)
    # Paths may hold what people typed; the access log of the server would keep all of it.
    config = uvicorn.Config(
        app,
        http=TimedProtocol,
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=IDLE,
        backlog=ACCEPTED,
        timeout_graceful_shutdown=GRACE,
    )
    server = _Server(config)
    link = f"/#token={settings.token}" if settings.share else ""
    say(f"{about}, at {address(listener)}{link} (Ctrl-C ends)")
    before = _quiet_signals()
    try:
        server.run(sockets=[listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        listener.close()
        DECODER_PROCESSES.kill()


class _Server(uvicorn.Server):
    """Accepts few connections at a time; the system keeps many others until then."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(QUEUE)


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
        listener.listen(QUEUE)  # from here on nobody is turned away
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
