"""`cala serve` at its ends on loopback: slow clients, heavy teaching, many classes, its memory.

    python benchmarks/load.py                                     # as in docs/performance.md
    python benchmarks/load.py --classes 20 --requests 400 --seconds 5 --marks 100 200 400

1. idle: one client asks, one photo at a time.
2. crowded: the same, while connections send their bodies a byte at a time, and another client
   teaches requests of many photos of 24 megapixels. The 95th percentile may be 5 times that of 1.
3. mixed: many clients ask while one teaches classes of five photos, until both have done their
   share. Memory is that of the service and its decoders together.
4. truth: afterwards one photo of each class is asked about, and compared with the model on disk.

Photos are drawn here; each request appends other bytes behind the end of its file, so that no
answer is remembered. Clients and server share the machine's threads.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import socket
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

import serve_load
from serve_load import BASE, Load, drawn, fresh, make_model, start, teach


def memory(process: subprocess.Popen) -> float:
    """MB of the process and of those that it started."""
    tasks = Path(f"/proc/{process.pid}/task")
    children = " ".join((task / "children").read_text() for task in tasks.iterdir()).split()
    total = 0
    for one in (process.pid, *children):
        text = Path(f"/proc/{one}/status").read_text()
        total += int(re.search(r"VmRSS:\s+(\d+)", text)[1])
    return round(total / 1024, 1)


def large_photo() -> bytes:
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 255, (75, 100, 3), dtype=np.uint8))
    written = io.BytesIO()
    coarse.resize((6000, 4000), Image.Resampling.BILINEAR).save(written, "JPEG", quality=30)
    return written.getvalue()


def crowd(url: str, given: argparse.Namespace, stop: threading.Event, taught: list[int]) -> None:
    """Slow bodies and heavy teaching, until told to stop."""
    port = int(url.rpartition(":")[2])
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n"
    head += b"Content-Type: application/json\r\n\r\n"  # others are refused at once
    slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(given.slow)]
    for line in slow:
        line.sendall(head)

    def trickle() -> None:
        while not stop.wait(1):
            for line in slow:
                line.sendall(b"x")

    trickling = threading.Thread(target=trickle)
    trickling.start()
    large = large_photo()
    while not stop.is_set():
        files = [("images", (f"{n}.jpg", fresh(large))) for n in range(given.heavy)]
        name = {"name": f"heavy {len(taught)}"}
        answer = httpx.post(f"{url}/v1/classes", data=name, files=files, timeout=600)
        taught.append(answer.status_code)
    trickling.join()
    for line in slow:
        line.close()


def mixed(load: Load, process: subprocess.Popen, given: argparse.Namespace) -> dict[str, object]:
    marks: dict[int, float] = {}
    teaching: list[float] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            for mark in given.marks:
                if mark not in marks and len(load.times) >= mark:
                    marks[mark] = memory(process)

    def work() -> None:
        teaching.extend(teach(load, given.classes))
        while len(load.times) < given.requests:
            time.sleep(0.1)

    watching = threading.Thread(target=watch)
    watching.start()
    found = load.during(work)
    done.set()
    watching.join()
    p50, p95 = np.percentile(teaching, [50, 95])
    return {**found, "mb": marks, "teach_p50_ms": 1000 * p50, "teach_p95_ms": 1000 * p95}


def differences(load: Load, model: Path) -> int:
    """Answers that are not those of the model on disk."""
    import cala

    photos = [photos[0] for photos in load.queries.values()]

    def ask(photo: bytes) -> str:
        files = {"images": ("x.jpg", fresh(photo))}
        answer = httpx.post(f"{load.url}/v1/predict?unknown=off", files=files, timeout=120)
        return answer.json()["predictions"][0]["best"]

    with ThreadPoolExecutor(4) as pool:
        asked = list(pool.map(ask, photos))
    images = [Image.open(io.BytesIO(photo)) for photo in photos]
    own = list(cala.load(model).predict(images, unknown="off"))
    return sum(a != b for a, b in zip(asked, own, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--marks", type=int, nargs="+", default=[1000, 5000, 10_000, 20_000])
    parser.add_argument("--seconds", type=float, default=30, help="of 1 and 2 each")
    parser.add_argument("--slow", type=int, default=32, help="slow connections")
    parser.add_argument("--heavy", type=int, default=40, help="large photos of a request")
    parser.add_argument("--side", type=int, default=160, help="width of drawn photos")
    parser.add_argument("--encoder", default="resnet20-cifar100", help="of 3 and 4")
    parser.add_argument("--crowd-encoder", default="efficientnet-lite0", help="of 1 and 2")
    given = parser.parse_args()
    found: dict[str, object] = {"settings": vars(given)}
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder, "1"), given.crowd_encoder)
        queries = {f"known {n}": [drawn(n, 100)] for n in range(BASE)}
        process, url = start(model)
        try:
            load = Load(url, queries, 1)
            load.during(lambda: time.sleep(3))  # warm
            found["idle"] = load.during(lambda: time.sleep(given.seconds))
            stop, taught = threading.Event(), []
            crowding = threading.Thread(target=crowd, args=(url, given, stop, taught))
            crowding.start()
            time.sleep(2)
            found["crowded"] = load.during(lambda: time.sleep(given.seconds))
            found["crowded"]["mb"] = memory(process)
            stop.set()
            crowding.join()
            found["heavy_requests"] = taught
            found["ratio_p95"] = found["crowded"]["p95_ms"] / found["idle"]["p95_ms"]
            print({key: found[key] for key in found if key != "settings"}, flush=True)
        finally:
            process.terminate()
            process.wait(60)
        serve_load.SIZE = (given.side, given.side * 3 // 4)
        model = make_model(Path(folder, "2"), given.encoder)
        queries = {f"known {n}": [drawn(n, 100)] for n in range(BASE)}
        process, url = start(model)
        try:
            load = Load(url, queries, given.clients)
            found["mixed"] = mixed(load, process, given)
            print(found["mixed"], load.errors[:3], flush=True)
            found["differences"] = differences(load, model)
        finally:
            process.terminate()
            process.wait(60)
        found["exit_code"] = process.returncode
    print(json.dumps(found))


if __name__ == "__main__":
    main()
