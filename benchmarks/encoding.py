"""Images per second from files to embeddings, against the model alone on one fixed batch.

    python benchmarks/encoding.py [--photos 60] [--turns 3] [--threads 2] [--json FILE]

Generated JPEGs of 640 × 480 pixels through `efficientnet-lite0` at 224, with an empty cache:
finding, hashing, decoding, resizing, encoding and storing. The two take turns in one process.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from arguments import target_file, whole_number
from cala.data.sets import open_images
from cala.encoders import load_encoder
from cala.encoders.embed import batch_size, embed
from machine import machine, use_threads

SIZE = (640, 480)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=whole_number(8), default=60)
    parser.add_argument("--turns", type=whole_number(1), default=3)
    parser.add_argument("--threads", type=whole_number(1), default=os.cpu_count() or 1)
    parser.add_argument("--encoder", default="efficientnet-lite0")
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    args = parser.parse_args()
    use_threads(args.threads)
    print(machine())
    encoder = load_encoder(args.encoder)
    side = encoder.transform.size
    batch = torch.randn(batch_size(encoder), 3, side, side)
    spent = {"model alone": 0.0, "files to embeddings": 0.0, "again, from the cache": 0.0}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_photos(root / "photos", args.photos)
        encoder.encode(batch)
        for turn in range(args.turns):
            os.environ["CALA_CACHE"] = str(root / f"cache {turn}")
            spent["model alone"] += seconds(lambda: alone(encoder, batch, args.photos))
            spent["files to embeddings"] += seconds(lambda: whole(root / "photos", encoder))
            spent["again, from the cache"] += seconds(lambda: whole(root / "photos", encoder))
    rates = {name: args.turns * args.photos / value for name, value in spent.items()}
    print(f"\n{args.encoder}, {args.photos} photos of {SIZE[0]} × {SIZE[1]}, {args.turns} turns")
    for name, rate in rates.items():
        share = rate / rates["model alone"]
        print(f"  {name:<24}{rate:9.1f} img/s{100 * share:9.0f} % of the model alone")
    if args.json is not None:
        args.json.write_text(json.dumps({"machine": machine(), "img/s": rates}, indent=1))


def write_photos(folder: Path, count: int, seed: int = 0) -> None:
    draw = np.random.default_rng(seed)
    for number in range(count):
        small = draw.integers(0, 255, (12, 16, 3)).astype(np.uint8)
        place = folder / f"class {number % 4}"
        place.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(small).resize(SIZE, Image.Resampling.BICUBIC)
        picture.save(place / f"{number}.jpg", quality=90)


def alone(encoder, batch: torch.Tensor, photos: int) -> None:
    for start in range(0, photos, len(batch)):
        encoder.encode(batch[: photos - start])


def whole(folder: Path, encoder) -> None:
    embed(open_images(folder, "folder").train, encoder)


def seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
