"""Real servers: one in a thread of this process, or one in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import uvicorn

import cala
from cala.app.connections import TimedProtocol
from cala.app.factory import create_app
from cala.app.server import address, listen
from cala.app.settings import Limits, Settings
from cala.app.setup import SetupApp
from model.photos import ENCODER

TESTS = Path(__file__).parents[1]


@contextmanager
def serving(folder: Path, port: int = 0, limits: dict | None = None, **settings):
    """The address of a server in a thread; without a model where the folder is not there."""
    chosen = Settings(**settings, limits=replace(Limits(), **(limits or {})))
    listener = listen("127.0.0.1", port)
    if folder.exists():
        app = create_app(cala.load(folder), chosen)
    else:
        app = SetupApp(folder, chosen, ENCODER)
    server = uvicorn.Server(uvicorn.Config(app, http=TimedProtocol, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield address(listener)
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


def start(folder: Path, *options: object, stderr=None, **env) -> tuple[subprocess.Popen, str]:
    """`cala serve` as people start it: the process and its address."""
    path = f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **env}
    command = [sys.executable, "-m", "cala", "serve", folder, "--port", 0, *options]
    process = subprocess.Popen(
        list(map(str, command)), env=env, stdout=subprocess.PIPE, stderr=stderr, text=True
    )
    line = process.stdout.readline()
    found = re.search(r"http://\S+", line)
    assert found, (line, process.wait(30))
    return process, found[0]
