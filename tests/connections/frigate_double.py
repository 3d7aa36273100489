"""A Frigate as its documentation describes it: the endpoints that the sidecar uses, and no more.

Snapshots and sub labels follow the versions 0.14 to 0.16: a live object has a crop if asked for, a
sub label has at most 100 characters, its score is above 0 and at most 1, and an unknown id is 404.
With a login, a cookie is asked for, as on port 8971.
"""

from __future__ import annotations

import io
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import numpy as np
from PIL import Image

COOKIE = "frigate_token=a.long.token"


def jpeg(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=95)
    return out.getvalue()


class Frigate:
    """What it holds, and what it was asked.

    objects : id -> JPEG; stored : ids that its database knows, None for all
    status : what all requests are answered with, if not 0; first : the next ones in turn
    """

    def __init__(self, login: dict | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.stored: set[str] | None = None
        self.login, self.status = login, 0
        self.first: list[int] = []
        self.sub_labels: list[tuple[str, str, float]] = []
        self.asked: list[str] = []

    def get(self, path: str, query: dict) -> tuple[int, bytes]:
        found = re.fullmatch(r"/api/events/([^/]+)/snapshot\.jpg", path)
        if not found or found[1] not in self.objects:
            return 404, b'{"success": false, "message": "Event not found"}'
        assert query["crop"] == ["1"]
        assert query["bbox"] == query["timestamp"] == ["0"]
        return 200, self.objects[found[1]]

    def post(self, path: str, body: dict) -> tuple[int, bytes]:
        found = re.fullmatch(r"/api/events/([^/]+)/sub_label", path)
        if not found or (self.stored is not None and found[1] not in self.stored):
            return 404, b'{"success": false}'
        name, score = body["subLabel"], body["subLabelScore"]
        if not isinstance(name, str) or len(name) > 100 or not 0 < score <= 1:
            return 422, b'{"detail": []}'
        self.sub_labels.append((found[1], name, score))
        return 200, b'{"success": true}'

    def __call__(self, handler: Handler, method: str) -> tuple[int, bytes, str]:
        url = urlsplit(handler.path)
        self.asked.append(f"{method} {url.path}")
        data = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        if self.first or self.status:
            return (self.first.pop(0) if self.first else self.status), b"", ""
        if method == "POST" and url.path == "/api/login":
            good = json.loads(data) == self.login
            return (200 if good else 401), b"{}", COOKIE if good else ""
        if self.login and COOKIE not in handler.headers.get("Cookie", ""):
            return 401, b"", ""
        if method == "GET":
            return *self.get(url.path, parse_qs(url.query)), ""
        assert handler.headers["Content-Type"] == "application/json"
        return *self.post(url.path, json.loads(data)), ""


class Handler(BaseHTTPRequestHandler):
    frigate: Frigate

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def _answer(self, method: str) -> None:
        status, data, cookie = self.frigate(self, method)
        self.send_response(status)
        if cookie:
            self.send_header("Set-Cookie", f"{cookie}; HttpOnly; Path=/")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def running(frigate: Frigate, port: int = 0):
    """Its address, while it runs."""
    kind = type("OwnHandler", (Handler,), {"frigate": frigate})
    server = ThreadingHTTPServer(("127.0.0.1", port), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def message(id: str, kind: str = "update", frame: float = 1.0, /, **after: object) -> dict:
    """A message of `frigate/events`, as documented."""
    state = {
        "id": id,
        "camera": "garden",
        "frame_time": 1607123962.082975,
        "snapshot": {
            "frame_time": frame,
            "box": [415, 489, 528, 700],
            "area": 12728,
            "region": [260, 446, 660, 846],
            "score": 0.77546,
            "attributes": [],
        },
        "label": "bird",
        "sub_label": None,
        "top_score": 0.958984375,
        "false_positive": False,
        "start_time": 1607123955.475377,
        "end_time": 1607123970.0 if kind == "end" else None,
        "current_zones": [],
        "entered_zones": [],
        "thumbnail": None,
        "has_snapshot": True,
        "has_clip": False,
        "stationary": False,
    }
    return {"type": kind, "before": state, "after": {**state, **after}}
