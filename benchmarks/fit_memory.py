"""Peak memory of learning from 100,000 photos: photos to embeddings, fake classes, fit.

    python benchmarks/fit_memory.py [--photos 100000] [--classes 100] [--methods cala-plus cala ...]

Makes small distinct PNG files in a temporary folder and an encoder of 1,280 dimensions, whose own
work is next to nothing. For each method a fresh process opens the folder, encodes it (the first
one finds an empty cache), encodes 80 × 25 mixed images and fits. Photos are encoded at 32 pixels,
which saves minutes; mixed images, whose parents are kept for a while, at 224. Peak is the
process's largest resident memory; baseline the same right after the encoder is loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from arguments import target_file, whole_number
from memory import peak

DIM, PAIRS, IMAGES = 1280, 80, 25
SIDE, MIX_SIDE = 32, 224
LIMIT_MB = 1000.0  # for 100,000 photos: their embeddings in single precision are 512 MB
METHODS = ("cala-plus", "cala", "nearest-mean")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=whole_number(1000), default=100_000)
    parser.add_argument("--classes", type=whole_number(20), default=100)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        print(json.dumps(fit(Path(args.inside), args.methods[0])))
        return
    print(
        f"{platform.machine()}, {os.cpu_count()} CPUs; {args.photos:,} photos of {args.classes:,} "
        f"classes, {DIM} dimensions",
        flush=True,
    )
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        make_photos(Path(folder) / "photos", args.photos, args.classes)
        for number, method in enumerate(args.methods):
            found[method] = measure(Path(folder), method)
            show(method, "empty" if number == 0 else "full", found[method])
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1))
    sys.exit(any(numbers["above"] > LIMIT_MB for numbers in found.values()))


def make_photos(root: Path, count: int, classes: int) -> None:
    """Noise of 8 × 8 pixels around a colour per class; no two files alike."""
    from PIL import Image

    draw = np.random.default_rng(0)
    colours = draw.integers(0, 128, (classes, 8, 8, 3))
    for label, colour in enumerate(colours):
        folder = root / f"class {label:05d}"
        folder.mkdir(parents=True)
        for photo in range(label, count, classes):
            pixels = (colour + draw.integers(0, 128, colour.shape)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{photo:06d}.png", compress_level=1)


def measure(folder: Path, method: str) -> dict[str, float]:
    """`fit` in a process of its own."""
    command = [sys.executable, __file__, "--inside", str(folder / "photos"), "--methods", method]
    environment = {**os.environ, "CALA_CACHE": str(folder / "cache")}
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    seconds = time.perf_counter() - started
    return {**json.loads(done.stdout.splitlines()[-1]), "seconds": seconds}


def fit(photos: Path, method: str) -> dict[str, float]:
    """Peaks in MB (10⁶ bytes) after each step."""
    from cala import CalaClassifier
    from cala.data.sets import open_images
    from cala.encoders.embed import embed
    from cala.encoders.fakes import encode_fakes

    encoder, large = cheap_encoder(SIDE), cheap_encoder(MIX_SIDE)
    peaks = {"baseline": peak() / 1e6}
    split = open_images(photos).train
    peaks["open"] = peak() / 1e6
    X = embed(split, encoder)
    peaks["embed"] = peak() / 1e6
    pool = encode_fakes(split, np.arange(len(split)), large, pairs=PAIRS, images=IMAGES)
    peaks["fakes"] = peak() / 1e6
    model = CalaClassifier(method)
    model.fit(X, split.labels, fake=pool.features, pairs=pool.pairs, holdout="all")
    peaks["fit"] = peak() / 1e6
    return {**peaks, "above": peaks["fit"] - peaks["baseline"]}


def cheap_encoder(side: int):
    """8 × 8 mean colours times a fixed matrix, rectified."""
    import torch
    from torch import nn

    from cala.encoders import Transform
    from cala.encoders.torch_module import from_module

    torch.manual_seed(0)
    module = nn.Sequential(nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(192, DIM), nn.ReLU())
    module.dim = DIM
    return from_module("cheap", module, Transform(side, side), architecture="cheap")


def show(method: str, cache: str, found: dict[str, float]) -> None:
    steps = ", ".join(f"{name} {found[name]:.0f}" for name in ("open", "embed", "fakes", "fit"))
    verdict = "" if found["above"] <= LIMIT_MB else "  over its limit"
    print(f"\n{method} ({cache} cache, {found['seconds']:.0f} s)")
    print(f"  baseline {found['baseline']:.0f} MB, peak after {steps} MB")
    print(f"  {found['above']:.0f} MB above the encoder's own (limit {LIMIT_MB:.0f} MB){verdict}")


if __name__ == "__main__":
    main()
