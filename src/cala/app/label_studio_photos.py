"""Photos of Label Studio's tasks, from where the operator allows it and from nowhere else."""

from __future__ import annotations

import base64
import binascii
import json
import time
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, quote, unquote, urljoin, urlsplit

from cala.app.problems import Problem
from cala.app.settings import LabelStudioAccess, Limits
from cala.app.uploads import Upload, upload_of
from cala.files import reason, shown

SECONDS = 20.0  # for Label Studio to send the next bytes
FRESH = 240.0  # seconds; a personal access token buys tokens that last 300
PATHS = ("/data/", "/tasks/")  # where Label Studio serves files
LOCAL_FILES = "/data/local-files/"
REFRESH = "/api/token/refresh"


class TaskPhotos:
    """Reads photos by the addresses that tasks have for them."""

    def __init__(self, access: LabelStudioAccess, limits: Limits) -> None:
        self.access, self.limits = access, limits
        self._base = urlsplit(access.url)
        self._token, self._until = access.token, 0.0

    def read(self, task: int, data: dict[str, Any], field: str) -> Upload:
        """The photo of a task with `data`; `$undefined$` stands for a field that has no name."""
        place, address = f"task {task}", data.get(field, data.get("$undefined$"))
        if not isinstance(address, str):
            detail = f"task {task} has no photo called '{shown(field)[:100]}'"
            raise _not_fetched(detail, "see the project's labeling configuration")
        if address.startswith("data:"):
            return upload_of(_from_data_uri(address), "", place, self.limits)
        target = self._target(address)
        try:
            if self.access.files is not None and target.path.endswith(LOCAL_FILES):
                name = parse_qs(target.query).get("d", [""])[0]
                return upload_of(self._local(name, self.access.files), name, place, self.limits)
            sent = self._ask("GET", target)
        except (OSError, HTTPException, ValueError) as error:
            detail = f"the photo of task {task} cannot be fetched ({reason(error)})"
            raise _not_fetched(detail, "check --label-studio, and that it is running") from error
        return upload_of(sent, unquote(target.path), place, self.limits)

    def _target(self, address: str) -> SplitResult:
        """An address on the one host that may be asked, below the paths that serve files."""
        try:
            target = urlsplit(urljoin(self.access.url, address))
            same = origin(target) == origin(self._base)
        except ValueError:
            same = False
        if not same:
            fix = "only its own files are read: upload the photos to Label Studio"
            detail = f"{shown(address)[:200]} is not a file of {self.access.url}"
            raise _not_fetched(detail, fix)
        path = unquote(target.path).removeprefix(self._base.path.rstrip("/"))
        if not path.startswith(PATHS) or ".." in path.split("/"):
            detail = f"{shown(address)[:200]} is not where Label Studio serves files"
            raise _not_fetched(detail, "upload the photos to Label Studio")
        return target

    def _local(self, name: str, root: Path) -> bytes:
        path = (root / name).resolve()
        if not path.is_relative_to(root.resolve()) or not path.is_file():
            raise _not_fetched(f"there is no file {shown(name)[:200]}", "see --label-studio-files")
        with path.open("rb") as file:
            return file.read(self.limits.file + 1)

    def _ask(self, method: str, target: SplitResult, body: bytes | None = None) -> bytes:
        """What it answers; redirects are not followed."""
        kind = HTTPSConnection if target.scheme == "https" else HTTPConnection
        headers = {"Content-Type": "application/json"} if body else self._authorization()
        _, host, port = origin(target)
        with closing(kind(host, port, timeout=SECONDS)) as line:
            safe = "/%:@!$&'()*+,;=~?"
            path = quote(target.path, safe) + (f"?{quote(target.query, safe)}" * bool(target.query))
            line.request(method, path, body, headers)
            answer = line.getresponse()
            if answer.status != 200:
                fix = "check CALA_LABEL_STUDIO_TOKEN, and that Label Studio shows the photo"
                raise _not_fetched(f"Label Studio answers {path[:200]} with {answer.status}", fix)
            return answer.read(self.limits.file + 1)

    def _authorization(self) -> dict[str, str]:
        token = self.access.token
        if token.count(".") != 2:  # a legacy token
            return {"Authorization": f"Token {token}"} if token else {}
        if time.monotonic() > self._until:
            target = urlsplit(self.access.url.rstrip("/") + REFRESH)
            answer = self._ask("POST", target, json.dumps({"refresh": token}).encode())
            self._token, self._until = str(json.loads(answer)["access"]), time.monotonic() + FRESH
        return {"Authorization": f"Bearer {self._token}"}


def origin(url: SplitResult) -> tuple[str, str, int]:
    """Scheme, host and port; ValueError for what is not HTTP.

    >>> origin(urlsplit("HTTP://labels.example/data/1.png"))
    ('http', 'labels.example', 80)
    """
    default = {"http": 80, "https": 443}.get(url.scheme)
    if default is None or not url.hostname:
        raise ValueError("it is not an HTTP address")
    return url.scheme, url.hostname, url.port or default


def _from_data_uri(address: str) -> bytes:
    head, _, text = address.partition(",")
    try:
        if not head.endswith(";base64"):
            raise ValueError
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _not_fetched("the data URI is not base64", "use data:image/png;base64,…") from error


def _not_fetched(detail: str, fix: str) -> Problem:
    return Problem("not_fetched", detail, fix, field="task")
