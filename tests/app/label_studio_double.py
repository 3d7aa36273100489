"""A double of Label Studio: it serves photos as Label Studio 1.23 does, and sends what that sends.

The bodies are those that a real one sent (`test_label_studio_real.py` drives one), without fields
of projects that say nothing about photos.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

CREATED_AT = "2026-11-18T16:11:32.582357Z"
NAMES = ("robin", "heron", "class 3", "class 5")
CONFIG = (
    '<View><Image name="photo" value="$image"/><Choices name="bird" toName="photo">{}'
    "</Choices></View>"
).format("".join(f'<Choice value="{name}"/>' for name in NAMES))
TOKEN = "0123456789abcdef0123456789abcdef01234567"
PERSONAL = "head.body.seal"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        studio = self.server.studio
        studio.asked.append(self.path)
        good = self.headers.get("Authorization") in (
            f"Token {TOKEN}",
            f"Bearer access of {PERSONAL}",
        )
        if not good:
            return self._send(401, b"{}")
        if self.path in studio.redirects:
            return self._send(302, b"", studio.redirects[self.path])
        found = studio.files.get(self.path)
        return self._send(404, b"") if found is None else self._send(200, found)

    def do_POST(self) -> None:
        self.server.studio.asked.append(self.path)
        sent = self.rfile.read(int(self.headers["Content-Length"])).decode()
        good = self.path == "/api/token/refresh" and PERSONAL in sent
        self._send(200 if good else 401, f'{{"access": "access of {PERSONAL}"}}'.encode())

    def _send(self, status: int, data: bytes, location: str = "") -> None:
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *given: object) -> None:
        pass


class Studio:
    """One project with tasks."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.asked: list[str] = []
        self.tasks: dict[int, str] = {}
        self._clock = count(1)

    def upload(self, data: bytes) -> int:
        """A task with a photo that was uploaded."""
        number = len(self.tasks) + 1
        address = f"/data/upload/1/3c5d258c-x{number}.png"
        self.files[address] = data
        return self.link(address)

    def link(self, address: str) -> int:
        """A task with a photo at an address."""
        number = len(self.tasks) + 1
        self.tasks[number] = address
        return number

    def task(self, number: int) -> dict:
        return {
            **{"id": number, "data": {"image": self.tasks[number]}, "meta": {}, "project": 1},
            **{"created_at": CREATED_AT, "updated_at": CREATED_AT, "is_labeled": False},
            **{"overlap": 1, "inner_id": number, "total_annotations": 0, "file_upload": number},
            **{"updated_by": None, "comment_authors": [], "annotations": [], "predictions": []},
        }

    def setup(self, config: str = CONFIG) -> dict:
        return {
            **{"project": "1.1795018292", "schema": config, "hostname": "http://localhost:8080"},
            **{"access_token": TOKEN, "extra_params": None},
        }

    def predict(self, *tasks: int, config: str = CONFIG) -> dict:
        params = {"login": None, "password": None, "context": None}
        told = [self.task(number) for number in tasks]
        return {
            **{"tasks": told, "project": "1.1795018292", "label_config": config, "params": params}
        }

    def project(self) -> dict:
        return {"id": 1, "title": "Birds", "label_config": CONFIG, "created_at": CREATED_AT}

    def annotation(self, id: int, task: int, *names: str, skipped: bool = False) -> dict:
        value = {"type": "choices", "value": {"choices": list(names)}}
        result = [{"from_name": "bird", "to_name": "photo", **value}] if names else []
        return {
            **{"id": id, "result": result, "was_cancelled": skipped, "ground_truth": False},
            **{"created_at": CREATED_AT, "updated_at": f"2026-11-18T17:00:{next(self._clock):02}Z"},
            **{"prediction": {}, "result_count": len(result), "import_id": None, "task": task},
            **{"project": 1, "completed_by": 1, "parent_prediction": None, "lead_time": None},
        }

    def webhook(self, action: str, annotation: dict) -> dict:
        task = self.task(annotation["task"])
        return {
            **{"action": action, "annotation": annotation, "project": self.project(), "task": task}
        }

    def created(self, *given: object, **more: object) -> dict:
        return self.webhook("ANNOTATION_CREATED", self.annotation(*given, **more))

    def updated(self, *given: object, **more: object) -> dict:
        return self.webhook("ANNOTATION_UPDATED", self.annotation(*given, **more))

    def deleted(self, *ids: int) -> dict:
        listed = [{"id": id} for id in ids]
        return {"action": "ANNOTATIONS_DELETED", "annotations": listed, "project": self.project()}


@contextmanager
def studio_double():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.studio = Studio(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.studio
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
