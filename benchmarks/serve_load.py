"""`cala serve` under load on loopback: many clients predict while one teaches.

    python benchmarks/serve_load.py                      # 16 clients, 100 classes, 10,000 requests
    python benchmarks/serve_load.py --classes 10 --requests 500

1. alone: the service's own decoders and encoder, fed by as many tasks as there will be clients,
   in a process without HTTP. What follows is measured against this.
2. predicting: the clients ask over HTTP, each with one photo that nobody has sent before. Both in
   turns, three times; medians count.
3. teaching: the same while one more client teaches classes of five photos. Answers for classes
   whose teaching was acknowledged before the request was sent must be right.
4. memory: the server's resident set over many requests.

Photos are drawn here, 640 × 480 JPEG; each request appends other bytes behind the end of its file,
so that no answer is remembered. Clients and server share the machine's threads.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
from PIL import Image, ImageDraw

SIZE = (640, 480)
BASE = 20
SHOTS = 5
ROUNDS = 3


def drawn(label: int, number: int) -> bytes:
    """A JPEG: shapes whose colours, places and number are the class's, moved a little."""
    kind, own = np.random.default_rng(label), np.random.default_rng([label, number])
    image = Image.new("RGB", SIZE, tuple(kind.integers(40, 215, 3).tolist()))
    draw = ImageDraw.Draw(image)
    for _ in range(int(kind.integers(2, 6))):
        x, y = kind.uniform(0.1, 0.7, 2) * SIZE + own.normal(0, 12, 2)
        w, h = kind.uniform(0.15, 0.4, 2) * SIZE
        colour = tuple(kind.integers(0, 255, 3).tolist())
        shape = (draw.ellipse, draw.rectangle, draw.chord)[int(kind.integers(3))]
        extra = {"start": 30, "end": 240} if shape == draw.chord else {}
        shape([x, y, x + w, y + h], fill=colour, **extra)
    pixels = np.asarray(image) + own.normal(0, 10, (SIZE[1], SIZE[0], 3))
    written = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(written, "JPEG", quality=90)
    return written.getvalue()


def fresh(photo: bytes) -> bytes:
    return photo + os.urandom(16)


def make_model(folder: Path, encoder: str) -> Path:
    import cala

    for label in range(BASE):
        place = folder / "known" / f"known {label}"
        place.mkdir(parents=True)
        for number in range(5):
            (place / f"{number}.jpg").write_bytes(drawn(label, number))
    cala.fit(folder / "known", folder / "model", encoder=encoder, fakes="feature")
    return folder / "model"


def alone(model: str, photos: list[bytes], clients: int, seconds: float, out) -> None:
    """Photos per second through decoders and encoder, without HTTP and without heads."""
    import cala
    from cala.app.photo_encoder import PhotoEncoder
    from cala.app.settings import Limits
    from cala.app.uploads import _upload

    opened, limits = cala.load(model), Limits()
    encoder = PhotoEncoder(opened.encoder, opened.current.encoder.tta, limits)
    done = 0

    async def feed(number: int, until: float) -> None:
        nonlocal done
        while time.perf_counter() < until:
            data = fresh(photos[(number + done) % len(photos)])
            await encoder.photos([_upload(data, "x.jpg", "images[0]", limits)], 60)
            done += 1

    async def run() -> float:
        await feed(0, time.perf_counter() + 2)  # warm
        nonlocal done
        done, start = 0, time.perf_counter()
        await asyncio.gather(*(feed(n, start + seconds) for n in range(clients)))
        return done / (time.perf_counter() - start)

    out.put(asyncio.run(run()))
    encoder.close()


def start(model: Path) -> tuple[subprocess.Popen, str]:
    command = [sys.executable, "-m", "cala", "serve", str(model), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    return process, re.search(r"http://\S+", process.stdout.readline())[0]


def rss(process: subprocess.Popen) -> float:
    """MB"""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024


class Load:
    """Clients that ask until they are told to stop."""

    def __init__(self, url: str, queries: dict[str, list[bytes]], clients: int) -> None:
        self.url, self.queries, self.clients = url, queries, clients
        self.names = list(queries)
        self.known = len(queries)
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.times: list[float] = []
        self.errors: list[str] = []
        self.wrong: list[str] = []

    def add(self, name: str, photos: list[bytes]) -> None:
        with self.lock:
            self.queries[name] = photos
            self.names.append(name)

    def ask(self, number: int, most: int | None = None) -> None:
        draw = np.random.default_rng(number)
        with httpx.Client(base_url=self.url, timeout=120) as client:
            asked = 0
            while not self.stop.is_set() and (most is None or asked < most):
                with self.lock:
                    name = self.names[int(draw.integers(len(self.names)))]
                photo = fresh(self.queries[name][int(draw.integers(len(self.queries[name])))])
                begun = time.perf_counter()
                try:
                    answer = client.post(
                        "/v1/predict?unknown=off&top=1", files={"images": ("x.jpg", photo)}
                    )
                    spent = time.perf_counter() - begun
                    if answer.status_code != 200:
                        self.errors.append(f"{answer.status_code} {answer.text[:200]}")
                    elif answer.json()["predictions"][0]["best"] != name:
                        self.wrong.append(f"{name}: {answer.json()['predictions'][0]['best']}")
                    self.times.append(spent)
                except httpx.HTTPError as error:
                    self.errors.append(repr(error))
                asked += 1

    def during(self, work) -> dict[str, float]:
        self.stop.clear()
        self.times, self.errors, self.wrong = [], [], []
        begun = time.perf_counter()
        with ThreadPoolExecutor(self.clients) as pool:
            asking = [pool.submit(self.ask, n) for n in range(self.clients)]
            try:
                work()
            finally:
                self.stop.set()
            for one in asking:
                one.result()
        spent = time.perf_counter() - begun
        p50, p95 = map(float, np.percentile(self.times, [50, 95]))
        return {
            "requests": len(self.times),
            "per_second": len(self.times) / spent,
            "p50_ms": 1000 * p50,
            "p95_ms": 1000 * p95,
            "errors": len(self.errors),
            "wrong": len(self.wrong),
            "wrong_new": sum(line.startswith("taught") for line in self.wrong),
        }


def teach(load: Load, classes: int) -> list[float]:
    times = []
    with httpx.Client(base_url=load.url, timeout=120) as client:
        for number in range(classes):
            label, name = 1000 + number, f"taught {number}"
            files = [("images", (f"{n}.jpg", drawn(label, n))) for n in range(SHOTS)]
            queries = [drawn(label, 100 + n) for n in range(2)]
            begun = time.perf_counter()
            answer = client.post("/v1/classes", data={"name": name}, files=files)
            times.append(time.perf_counter() - begun)
            assert answer.status_code == 201, answer.text
            load.add(name, queries)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--encoder", default="efficientnet-lite0")
    given = parser.parse_args()
    found: dict[str, object] = {"settings": vars(given), "threads": os.cpu_count()}
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder), given.encoder)
        queries = {f"known {n}": [drawn(n, 100 + k) for k in range(3)] for n in range(BASE)}
        photos = [photo for some in queries.values() for photo in some]
        process, url = start(model)
        try:
            load = Load(url, queries, given.clients)
            load.during(lambda: time.sleep(3))  # warm
            rates, rounds = [], []
            for _ in range(ROUNDS):
                rates.append(by_itself(model, photos, given))
                rounds.append(load.during(lambda: time.sleep(given.seconds)))
                print(f"alone: {rates[-1]:.1f} photos/s; predicting: {rounds[-1]}", flush=True)
            found["alone_per_second"] = float(np.median(rates))
            found["predicting"] = {
                key: float(np.median([r[key] for r in rounds])) for key in rounds[0]
            }
            taught: list[float] = []
            found["teaching"] = load.during(lambda: taught.extend(teach(load, given.classes)))
            spent = found["teaching"]["requests"] / found["teaching"]["per_second"]
            found["teaching"]["photos_per_second"] = (
                found["teaching"]["requests"] + SHOTS * given.classes
            ) / spent
            found["teach_ms"] = dict(
                zip(("p50", "p95"), (1000 * np.percentile(taught, [50, 95])).tolist(), strict=True)
            )
            print("while teaching:", found["teaching"], "teaching ms:", found["teach_ms"])
            print("errors:", load.errors[:3], "wrong:", load.wrong[:10], flush=True)
            found["rss"] = memory(load, process, given)
            print("RSS, MB by requests:", found["rss"])
            sizes = [size for _, size in found["rss"]]
            fifth = max(1, len(sizes) // 5)
            found["rss_first_and_last_fifth"] = [
                float(np.mean(sizes[:fifth])),
                float(np.mean(sizes[-fifth:])),
            ]
        finally:
            process.terminate()
            process.wait(60)
        found["exit_code"] = process.returncode
    rate = found["alone_per_second"]
    found["share_of_alone"] = {
        "predicting": found["predicting"]["per_second"] / rate,
        "while_teaching": found["teaching"]["per_second"] / rate,
        "while_teaching_with_taught_photos": found["teaching"]["photos_per_second"] / rate,
    }
    print("of decoding and encoding alone:", found["share_of_alone"])
    print("RSS, MB, first and last fifth:", found["rss_first_and_last_fifth"])
    print(json.dumps(found))


def by_itself(model: Path, photos: list[bytes], given: argparse.Namespace) -> float:
    spawn = multiprocessing.get_context("spawn")
    out = spawn.Queue()
    job = spawn.Process(target=alone, args=(str(model), photos, given.clients, given.seconds, out))
    job.start()
    rate = out.get()
    job.join()
    return rate


def memory(load: Load, process: subprocess.Popen, given: argparse.Namespace) -> list:
    load.times, load.errors = [], []
    load.stop.clear()
    each = -(-given.requests // given.clients)
    marks = []
    with ThreadPoolExecutor(given.clients) as pool:
        asking = [pool.submit(load.ask, 100 + n, each) for n in range(given.clients)]
        while not all(one.done() for one in asking):
            marks.append((len(load.times), round(rss(process), 1)))
            time.sleep(max(0.5, given.requests / 2000))
        for one in asking:
            one.result()
    marks.append((len(load.times), round(rss(process), 1)))
    assert not load.errors, load.errors[:3]
    return marks[:: max(1, len(marks) // 20)] + marks[-1:]


if __name__ == "__main__":
    main()
