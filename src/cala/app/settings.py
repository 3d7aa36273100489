"""What the service allows: sizes, times, who may do what."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

from cala.errors import InputError
from cala.files import shown

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Limits:
    """Where the service says no.

    body, archive : bytes of a request, and of one that brings labelled photos
    file, pixels : of one photo; unpacked : bytes of all files of an archive together
    predict, teach, check : photos of one request
    idle : seconds without a byte of a body; seconds : for its photos to be looked at
    check_seconds : for a body to arrive, and for many labelled photos to be looked at
    waiting : photos in the queue before the encoder, from where on requests are turned away
    together : bytes of all requests that are being read or answered; requests : their number
    recent : bytes of embeddings and small copies that are kept for photos to be named again
    """

    body: int = 64 << 20
    archive: int = 512 << 20
    file: int = 32 << 20
    pixels: int = 50_000_000
    unpacked: int = 2 << 30
    predict: int = 64
    teach: int = 200
    check: int = 5000
    idle: float = 30.0
    seconds: float = 60.0
    check_seconds: float = 900.0
    waiting: int = 1024
    together: int = 1 << 30
    requests: int = 512
    recent: int = 32 << 20


@dataclass(frozen=True)
class LabelStudioAccess:
    """Label Studio at `url`, whose ML backend the service is.

    token : reads the photos of its tasks; files : where its local files are on this machine
    """

    url: str
    token: str = field(default="", repr=False)
    files: Path | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"https?://[^\s/@?#:]+(:\d{1,5})?(/[^\s?#]*)?", self.url):
            fix = "give its address, such as http://127.0.0.1:8080"
            raise InputError(f"{shown(self.url)} is no address", fix, field="label_studio")


@dataclass(frozen=True)
class Settings:
    """token : the right to teach, and to read; read_token : the right to read alone.

    Without a token whoever reaches the port may do everything, so it must be a loopback address.
    hosts : names under which the service is reached, beside IP addresses and localhost
    share : the page shows a link with the token to those who may teach
    label_studio : the one that may ask for predictions and teach by annotations, if any
    """

    host: str = "127.0.0.1"
    token: str = field(default="", repr=False)
    read_token: str = field(default="", repr=False)
    hosts: tuple[str, ...] = ()
    thumbnails: bool = True
    share: bool = False
    limits: Limits = field(default_factory=Limits)
    label_studio: LabelStudioAccess | None = None

    def __post_init__(self) -> None:
        for name, value in (("token", self.token), ("read_token", self.read_token)):
            if value and not re.fullmatch(r"[!-~]{16,}", value):
                detail = f"the {name.replace('_', ' ')} is too short or cannot be sent"
                command = "python -c 'import secrets; print(secrets.token_urlsafe())'"
                fix = f"use at least 16 ASCII letters, digits and signs, such as `{command}` prints"
                raise InputError(detail, fix, field=name)
        if self.read_token and not self.token:
            fix = "give --token or CALA_TOKEN too: without it nobody could teach"
            raise InputError("a read token requires a token", fix, field="read_token")
        if self.token and self.token == self.read_token:
            fix = "use another one, or leave it out"
            raise InputError("the read token must differ from the token", fix, field="read_token")
        if not self.token and not is_loopback(self.host):
            detail = f"other machines can reach {shown(self.host)}"
            fix = "set CALA_TOKEN (or --token) so that not everybody can teach, or use 127.0.0.1"
            raise InputError(detail, fix, field="token")


def outward() -> str:
    """The address under which others reach this machine, which names of machines often are not."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            line.connect(("192.0.2.1", 9))  # chooses a way; nothing is sent
            return str(line.getsockname()[0])
    except OSError:
        return socket.gethostname()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    found = ip_address(host)
    return host == "localhost" or (found is not None and found.is_loopback)


def ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address that a host is given as; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
