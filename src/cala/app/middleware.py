"""What every request passes: who may ask, how much it may bring and how long, and a count of it."""

from __future__ import annotations

import asyncio
import base64
import hmac
import re
import socket
import time
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cala.app.connections import SPARE, most_connections
from cala.app.problems import FORM, Problem, busy, media_type, unexpected
from cala.app.settings import LOCAL, Limits, Settings, ip_address
from cala.files import shown

TEACH, READ = "teach", "read"
HEALTH = ("/healthz", "/readyz")
OPEN = ("/", "/docs", "/openapi.json", "/favicon.ico", *HEALTH)
# Sent by POST, and yet they change nothing; the last two are Label Studio's.
ASKING = ("/v1/predict", "/v1/evaluate", "/predict", "/setup")
SAFE = ("GET", "HEAD", "OPTIONS")
LARGE = ("/v1/evaluate", "/v1/start/photos")  # forms may bring an archive
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
TIMES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE")


class Guard:
    """Hosts, origins, tokens and rights; nothing of a request is read before it has passed."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings
        own = {settings.host.lower(), *(host.lower() for host in settings.hosts)}
        self.hosts = LOCAL | own | {socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started = False

        async def sealed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                private = scope["path"].startswith("/v1/")
                kept = {"cache-control": "no-store" if private else "no-cache"}
                for name, value in {**HEADERS, **kept}.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        try:
            self._check_host(headers)
            self._check_origin(scope["method"], headers)
            scope["cala.right"] = self._right(scope["method"], scope["path"], headers)
            return await self.app(scope, receive, sealed)
        except Problem as error:
            problem = error
        except Exception as error:
            problem = unexpected(error)
        if not started:
            await problem.response()(scope, receive, sealed)

    def _check_host(self, headers: Headers) -> None:
        """A name that an attacker's DNS answers with our address is not ours."""
        name = _host(headers.get("host", ""))
        if name not in self.hosts and ip_address(name) is None:
            detail = f"this service is not called '{shown(name)[:100]}'"
            fix = "use its IP address, or start it with --allow-host NAME"
            raise Problem("wrong_host", detail, fix, field="Host")

    def _check_origin(self, method: str, headers: Headers) -> None:
        """Another site's page cannot teach in the name of whoever looks at it."""
        if method in SAFE:
            return
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        foreign = site not in (None, "same-origin", "none")
        if origin is not None:
            foreign |= _place(origin) != headers.get("host", "").lower()
        if foreign:
            detail = f"a page of another site ({shown(origin or site)[:100]}) sent this"
            fix = "use the page of this service, or a program that is not a browser"
            raise Problem("cross_origin", detail, fix, field="Origin")

    def _right(self, method: str, path: str, headers: Headers) -> str:
        """`teach` or `read`; raises where the token does not grant what is asked."""
        if not self.settings.token:
            return TEACH
        has = self._granted(headers)
        if path in OPEN or path.startswith("/static/"):
            return has or READ
        if not has:
            detail = "the token is missing or wrong"
            fix = "send the header 'Authorization: Bearer TOKEN'"
            wanted = {"www-authenticate": "Bearer"}
            raise Problem("token_needed", detail, fix, field="Authorization", headers=wanted)
        if has == READ and method not in SAFE and path not in ASKING:
            detail = "this token may ask and not teach"
            fix = "use the token that the service was started with, not the read token"
            raise Problem("read_only", detail, fix, field="Authorization")
        return has

    def _granted(self, headers: Headers) -> str:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic" and self.settings.label_studio is not None:
            given = _password(given)
        elif scheme.lower() != "bearer":
            return ""
        token = given.strip().encode("utf-8", "replace")
        teach = hmac.compare_digest(token, self.settings.token.encode())
        wanted = self.settings.read_token
        read = hmac.compare_digest(token, wanted.encode()) and bool(wanted)
        return TEACH if teach else READ if read else ""


def _password(credentials: str) -> str:
    """The password of basic authentication, which is all that Label Studio can send.

    >>> _password("Y2FsYTpzZWNyZXQ=")
    'secret'
    """
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _host(header: str) -> str:
    """The name in a Host header, without its port.

    >>> _host("localhost:8000"), _host("[::1]:8000"), _host("a.example")
    ('localhost', '::1', 'a.example')
    """
    found = re.fullmatch(r"(?:\[([^\]]*)\]|([^:]*))(?::\d*)?", header)
    return (found[1] or found[2] or "").lower() if found else header.lower()


def _place(origin: str) -> str:
    """Host and port of an origin; nothing where it has none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


class BodyLimit:
    """Counts what arrives; a length that is announced and too large is refused at once.

    A slow line is no fault: something has to arrive from time to time, and it has to end.
    Signs of life are answered however many other requests there are.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits
        self.held = self.requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in HEALTH:
            return await self.app(scope, receive, send)
        if self.requests >= min(self.limits.requests, most_connections() - SPARE):
            raise busy("there are too many requests at the moment")
        self.requests += 1
        try:
            await self._limited(scope, receive, send)
        finally:
            self.requests -= 1

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        large = scope["path"] in LARGE and media_type(headers) == FORM
        most = self.limits.archive if large else self.limits.body
        deadline = time.monotonic() + self.limits.check_seconds
        length = headers.get("content-length", "0")
        if "content-length" in headers and "transfer-encoding" in headers:  # proxies may disagree
            detail, fix = "the request states its length twice", "send one Content-Length"
            closed = {"connection": "close"}
            raise Problem("bad_request", detail, fix, field="Transfer-Encoding", headers=closed)
        if not length.isdecimal() or int(length) > most:
            raise _too_large(most)
        arrived, ended = 0, False

        async def counted() -> Message:
            nonlocal arrived, ended
            if ended:  # what follows the body is only the end of the connection
                return await receive()
            try:
                left = min(self.limits.idle, deadline - time.monotonic())
                message = await asyncio.wait_for(receive(), max(0.0, left))
            except asyncio.TimeoutError:
                fix = "send fewer or smaller photos at a time, or check the connection"
                detail = "the request took too long to arrive"
                raise Problem("too_slow", detail, fix, field="body") from None
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
    detail = f"the request is larger than {most >> 20} MB"
    return Problem("too_large", detail, "send fewer or smaller photos at a time", field="body")


class Metrics:
    """What operators watch. A registry of its own, so that two services do not meet."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        labels = ["method", "route", "status"]
        self.requests = Counter("cala_requests", "Answers", labels, registry=registry)
        self.seconds = Histogram(
            "cala_request_seconds", "Time to answer", ["route"], buckets=TIMES, registry=registry
        )
        self.batches = Histogram(
            "cala_batch_photos",
            "Photos that went through the encoder together",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
            registry=registry,
        )
        self.taught = Counter("cala_taught_photos", "Photos taught", registry=registry)
        self.waiting = Gauge("cala_waiting_photos", "Photos in the queue", registry=registry)
        self.classes = Gauge("cala_classes", "Classes of the model", registry=registry)
        self.version = Gauge("cala_model_version", "Version of the model", registry=registry)


class RequestMetrics:
    """Counts and times every answer by the route that gave it, never by the path as it came."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        start, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.metrics.requests.labels(method, route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - start)
