"""How much a request may bring, and how long it may take to bring it.

A slow line is no fault: what counts is that something arrives, and that it ends some day.
"""

from __future__ import annotations

import asyncio
import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cala.app.problems import Problem, busy
from cala.app.settings import Limits

LARGE = ("/v1/evaluate", "/v1/start/photos")


class BodyLimit:
    """Counts what arrives; a length that is announced and too large is refused at once."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits
        self.held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        large = scope["path"] in LARGE
        most = self.limits.archive if large else self.limits.body
        deadline = time.monotonic() + self.limits.check_seconds
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isdecimal() or int(length) > most:
            return await _too_large(most).response()(scope, receive, send)
        arrived, ended = 0, False

        async def counted() -> Message:
            nonlocal arrived, ended
            if ended:  # what follows the body is only the end of the connection
                return await receive()
            try:
                left = min(self.limits.idle, deadline - time.monotonic())
                message = await asyncio.wait_for(receive(), max(0.0, left))
            except asyncio.TimeoutError:
                raise _too_slow() from None
            more = len(message.get("body", b""))
            arrived += more
            self.held += more
            ended = not message.get("more_body", False)
            if arrived > most:
                raise _too_large(most)
            if self.held > max(self.limits.together, arrived):  # one alone is never refused
                raise busy("other requests bring too much at the moment")
            return message

        try:
            await self.app(scope, counted, send)
        finally:
            self.held -= arrived


def _too_large(most: int) -> Problem:
    return Problem(
        413,
        "too_large",
        f"the request is larger than {most >> 20} MB",
        field="body",
        fix="send fewer or smaller photos at a time",
    )


def _too_slow() -> Problem:
    return Problem(
        408,
        "too_slow",
        "the request took too long to arrive",
        field="body",
        fix="send fewer or smaller photos at a time, or look at the connection",
    )
