"""Images per second of processor time from JPEG files to embeddings, against the parts alone.

    python benchmarks/encoding.py [--photos 60] [--turns 3] [--threads 2] [--json FILE]

Generated JPEGs of 640 × 480 pixels, with an empty cache of embeddings: finding, hashing, decoding,
resizing, encoding and storing. All take turns in one process, in equally many threads. "possible"
is 1 / (1 / the engine alone + 1 / decoding alone). The last rows are images per second of wall
time, by itself and beside two other programs that never pause.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from arguments import target_file, whole_number
from cala.data.decoding import decode
from cala.data.image_scan import in_order, use_workers
from cala.data.sets import open_images
from cala.encoders import Encoder, load_encoder
from cala.encoders.embed import batch_size, embed, slices
from goals import told
from machine import machine, use_threads

SIZE = (640, 480)
ENGINES = ("torch", "onnxruntime", "openvino")
REACHED, FASTER, LOADED = 0.9, 1.8, 0.4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=whole_number(8), default=60)
    parser.add_argument("--turns", type=whole_number(1), default=3)
    parser.add_argument("--threads", type=whole_number(1), default=os.cpu_count() or 1)
    parser.add_argument("--encoder", default="efficientnet-lite0")
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    args = parser.parse_args()
    use_workers(args.threads)
    use_threads(1)  # of torch within a pass
    print(machine())
    found = {name: load_encoder(args.encoder, engine=name) for name in ENGINES if find_spec(name)}
    fastest = load_encoder(args.encoder)
    chosen = next(name for name in reversed(found) if same_engine(found[name], fastest))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_photos(root / "photos", args.photos)
        files = sorted((root / "photos").rglob("*.jpg"))
        work: dict[str, Callable[[], None]] = {
            f"{name} alone": lambda encoder=encoder: alone(encoder, args.photos)
            for name, encoder in found.items()
        }
        work["decoding alone"] = lambda: decoded(files, fastest)
        work["cala on torch"] = lambda: whole(root, found["torch"])
        work[f"cala on {chosen}"] = lambda: whole(root, fastest)
        work["again, from the cache"] = lambda: embed(opened(root), fastest)
        spent = dict.fromkeys(work, 0.0)
        for turn in range(args.turns + 1):  # one to warm up
            for name, one in work.items():
                spent[name] += seconds(one, time.process_time) if turn else seconds(one)
                spent[name] *= turn > 0
        count = args.turns * args.photos
        rates = {name: count / value for name, value in spent.items()}
        wall = busy_rates(lambda: whole(root, fastest), args.photos)
    engine = rates[f"{chosen} alone"]
    possible = 1 / (1 / engine + 1 / rates["decoding alone"])
    ours = rates[f"cala on {chosen}"]
    print(f"\n{args.encoder}, {args.photos} photos of {SIZE[0]} × {SIZE[1]}, {args.turns} turns")
    for name, rate in rates.items():
        print(f"  {name:<24}{rate:9.1f} images per second of processor time")
    print(f"  {'possible':<24}{possible:9.1f}, of which cala reaches {100 * ours / possible:.0f} %")
    for name, rate in wall.items():
        print(f"  {name:<24}{rate:9.1f} images per second")
    share = wall["with two busy programs"] / wall["by itself"]
    goals = told(
        {
            f"cala reaches {ours / possible:.2f} of what is possible (goal: {REACHED})": ours
            >= REACHED * possible,
            f"{ours / rates['cala on torch']:.2f} times the path on torch (goal: {FASTER})": ours
            >= FASTER * rates["cala on torch"],
            f"beside two busy programs {share:.2f} of its rate (goal: {LOADED})": share >= LOADED,
        }
    )
    if args.json is not None:
        numbers = {"machine": machine(), "img/cpu s": rates, "possible": possible, "img/s": wall}
        args.json.write_text(json.dumps({**numbers, "engine": chosen, "goals": goals}, indent=1))


def same_engine(one: Encoder, other: Encoder) -> bool:
    kinds = [type(getattr(e.forward, "session", None)) for e in (one, other)]
    return kinds[0] is kinds[1]


def write_photos(folder: Path, count: int, seed: int = 0) -> None:
    draw = np.random.default_rng(seed)
    for number in range(count):
        small = draw.integers(0, 255, (12, 16, 3)).astype(np.uint8)
        place = folder / f"class {number % 4}"
        place.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(small).resize(SIZE, Image.Resampling.BICUBIC)
        picture.save(place / f"{number}.jpg", quality=90)


def alone(encoder: Encoder, photos: int) -> None:
    side = encoder.transform.size
    batch, parts = (
        np.ones((batch_size(encoder), 3, side, side), np.float32),
        slices(photos, encoder),
    )
    for _ in in_order(lambda now: encoder.encode(batch[: now.stop - now.start]), parts):
        pass


def decoded(files: list[Path], encoder: Encoder) -> None:
    for _ in in_order(lambda path: shown_to(encoder, path).size, files):
        pass


def shown_to(encoder: Encoder, path: Path) -> np.ndarray:
    """The photo as the encoder takes it, but for its normalisation."""
    return encoder.transform.prepare(decode(path, least=encoder.transform.least)[0])


def opened(root: Path):
    return open_images(root / "photos", "folder").train


def whole(root: Path, encoder: Encoder) -> None:
    os.environ["CALA_CACHE"] = tempfile.mkdtemp(dir=root)  # which knows nothing
    embed(opened(root), encoder)


def busy_rates(work: Callable[[], None], photos: int) -> dict[str, float]:
    """Images per second of wall time, by itself and with two programs beside it."""
    before = photos / seconds(work)
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        return {"by itself": before, "with two busy programs": photos / seconds(work)}
    finally:
        for process in others:
            process.kill()


def seconds(work: Callable[[], None], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    work()
    return clock() - start


if __name__ == "__main__":
    main()
