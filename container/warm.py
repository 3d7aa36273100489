"""Photos, a model, a service, a question: all that the container runs, once, from generated images.

    python container/warm.py

Leaves the bytecode of what was imported beside the modules, and fails if anything does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
from PIL import Image

CALA = Path(sys.executable).with_name("cala")
COMMANDS = ("fit known -o model", "add model new", "predict model new", "show model")
TOKEN = "at-least-16-signs"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        os.environ.update(CALA_CACHE=str(root / "cache"), CALA_TOKEN=TOKEN)
        write_photos(root)
        for command in COMMANDS:
            subprocess.run(
                [CALA, *command.split()], cwd=root, stdout=subprocess.DEVNULL, check=True
            )
        with subprocess.Popen(
            [CALA, "serve", "model", "--host", "0.0.0.0", "--port", "0"],
            cwd=root,
            stdout=subprocess.PIPE,
            text=True,
        ) as server:
            try:
                assert server.stdout is not None
                port = server.stdout.readline().split(" (")[0].rpartition(":")[2]
                label = ask(f"http://127.0.0.1:{port}", next((root / "new").rglob("*.png")))
            finally:
                server.terminate()
    sys.exit(0 if label == "class 2" else f"class 2 was taken for {label}")


def write_photos(root: Path) -> None:
    """Two known classes of five photos and a new one, each of a colour."""
    draw = np.random.default_rng(0)
    for label in range(3):
        place = root / ("new" if label == 2 else "known") / f"class {label}"
        place.mkdir(parents=True)
        for number in range(5):
            pixels = draw.integers(0, 100, (64, 64, 3))
            pixels[..., label] += 150
            Image.fromarray(pixels.astype(np.uint8)).save(place / f"{number}.png")


def ask(server: str, photo: Path) -> str:
    """The label that the service gives to a photo; it has a minute to start."""
    body = b'--x\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n\r\n'
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "multipart/form-data; boundary=x",
    }
    until = time.monotonic() + 60
    while True:
        try:
            urlopen(f"{server}/readyz", timeout=5).close()
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
    request = Request(
        f"{server}/v1/predict?unknown=off", body + photo.read_bytes() + b"\r\n--x--\r\n", headers
    )
    with urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["predictions"][0]["label"])


if __name__ == "__main__":
    main()
