"""Who may ask: host names, other origins, tokens and rights; and what every answer forbids."""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cala.app.problems import Problem
from cala.app.settings import LOCAL, Settings
from cala.files import shown

TEACH, READ = "teach", "read"
OPEN = ("/", "/docs", "/openapi.json", "/healthz", "/readyz", "/favicon.ico")
ASKING = ("/v1/predict", "/v1/evaluate")  # sent by POST, and yet they change nothing
SAFE = ("GET", "HEAD", "OPTIONS")
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


class Guard:
    """The outermost layer: nothing of a request is read before it has passed."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings
        own = {settings.host.lower(), *(host.lower() for host in settings.hosts)}
        self.hosts = LOCAL | own | {socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                private = scope["path"].startswith("/v1/")
                headers.setdefault("cache-control", "no-store" if private else "no-cache")
            await send(message)

        headers = Headers(scope=scope)
        try:
            self._check_host(headers)
            self._check_origin(scope["method"], headers)
            scope["cala.right"] = self._right(scope["method"], scope["path"], headers)
        except Problem as problem:
            return await problem.response()(scope, receive, sealed)
        await self.app(scope, receive, sealed)

    def _check_host(self, headers: Headers) -> None:
        """A name that an attacker's DNS answers with our address is not ours."""
        name = _host(headers.get("host", ""))
        if name in self.hosts or _is_ip(name):
            return
        raise Problem(
            421,
            "wrong_host",
            f"this service is not called '{shown(name)[:100]}'",
            field="Host",
            fix="use its IP address, or start it with --allow-host NAME",
        )

    def _check_origin(self, method: str, headers: Headers) -> None:
        """Another site's page cannot teach in the name of whoever looks at it."""
        if method in SAFE:
            return
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        foreign = site is not None and site not in ("same-origin", "none")
        if origin is not None and _place(origin) != headers.get("host", "").lower():
            foreign = True
        if foreign:
            raise Problem(
                403,
                "cross_origin",
                f"a page of another site ({shown(origin or site)[:100]}) sent this",
                field="Origin",
                fix="use the page of this service, or a program that is no browser",
            )

    def _right(self, method: str, path: str, headers: Headers) -> str:
        """`teach` or `read`; raises where the token does not grant what is asked."""
        if not self.settings.token:
            return TEACH
        has = self._granted(headers)
        if path in OPEN or path.startswith("/static/"):
            return has or READ
        if not has:
            raise Problem(
                401,
                "token_needed",
                "the token is missing or wrong",
                field="Authorization",
                fix="send the header 'Authorization: Bearer TOKEN'",
                headers={"www-authenticate": "Bearer"},
            )
        if has == READ and method not in SAFE and path not in ASKING:
            raise Problem(
                403,
                "read_only",
                "this token may ask and not teach",
                field="Authorization",
                fix="use the token that the service was started with, not the read token",
            )
        return has

    def _granted(self, headers: Headers) -> str:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return ""
        token = given.strip().encode("utf-8", "replace")
        teach = hmac.compare_digest(token, self.settings.token.encode())
        wanted = self.settings.read_token
        read = hmac.compare_digest(token, wanted.encode()) and bool(wanted)
        return TEACH if teach else READ if read else ""


def _host(header: str) -> str:
    """The name in a Host header, without its port.

    >>> _host("localhost:8000"), _host("[::1]:8000"), _host("a.example")
    ('localhost', '::1', 'a.example')
    """
    found = re.fullmatch(r"(?:\[([^\]]*)\]|([^:]*))(?::\d*)?", header)
    return (found[1] or found[2] or "").lower() if found else header.lower()


def _place(origin: str) -> str:
    """Host and port of an origin; nothing where it is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
