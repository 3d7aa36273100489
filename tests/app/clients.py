"""Clients of the service in this process, and photos as files in memory."""

from __future__ import annotations

import base64
import io
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from PIL import Image
from starlette.testclient import TestClient

import cala
from cala.app.factory import create_app
from cala.app.settings import Limits, Settings
from model.photos import photo

HOST = "http://127.0.0.1:8000"


def png(label: int, number: int, side: int = 12) -> bytes:
    written = io.BytesIO()
    picture = Image.fromarray(photo(label, number)).resize((side, side), Image.Resampling.NEAREST)
    picture.save(written, "PNG")
    return written.getvalue()


def form(label: int, numbers: range) -> list:
    return [("images", (f"{n}.png", png(label, n), "image/png")) for n in numbers]


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@contextmanager
def client_of(folder: Path, limits: dict | None = None, **settings):
    chosen = Settings(**settings, limits=replace(Limits(), **(limits or {})))
    app = create_app(cala.load(folder), chosen)
    with TestClient(app, base_url=HOST, raise_server_exceptions=False) as opened:
        yield opened


def teach(client, name: str, label: int, count: int = 5, key: str | None = None, start: int = 0):
    headers = {"Idempotency-Key": key} if key else {}
    files = form(label, range(start, start + count))
    return client.post("/v1/classes", data={"name": name}, files=files, headers=headers)


def problem(answer, status: int, code: str, field: str | None = None) -> dict:
    """A refusal as it has to be."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["code"], body["status"]) == (code, status), body
    assert body["detail"]
    assert field is None or body["field"] == field, body
    return body
