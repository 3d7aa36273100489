"""A whole protocol: cala's runner against the usual loop, with the same encoder.

    python benchmarks/whole_protocol.py [--draws 2] [--images 20] [--json FILE]

The usual loop of the field's codes goes through the test images of all classes seen so far in every
session, for every method and draw, and through the base images for their means. cala encodes every
image once, then works on embeddings. Images are generated; forwards and seconds are counted in one
process, the two ways one after the other. CIFAR-100's own numbers follow by counting.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from arguments import target_file, whole_number
from cala.benchmark.config import RunConfig
from cala.benchmark.runner import run_records
from cala.benchmark.sources import Source
from cala.benchmark.task import BenchTask
from cala.core.cala import normalise
from cala.data.images import ArrayPixels, ImageSet, ImageSplit
from cala.data.protocol import Protocol, random_draw
from cala.encoders import load_encoder
from cala.encoders.encode import encode_set
from machine import machine, use_threads

PROTOCOL = Protocol(name="60+8×5", base=60, way=5, shot=5, sessions=8)
METHODS = ("nearest-mean", "la")
BATCH = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=whole_number(1), default=2)
    parser.add_argument("--images", type=whole_number(10), default=20, help="of each class")
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    args = parser.parse_args()
    use_threads(1)
    print(machine())
    with tempfile.TemporaryDirectory() as cache:
        os.environ["CALA_CACHE"] = cache
        found = compare(args.draws, args.images)
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1))


def compare(draws: int, images: int) -> dict[str, dict[str, float]]:
    encoder = load_encoder("resnet20-cifar100")
    counted = Counted(encoder)
    found = generated(images)
    runs = len(METHODS) * draws
    print(
        f"\n{PROTOCOL.n_classes} classes, {images} training and {images} test images each, "
        f"{len(METHODS)} methods × {draws} draws"
    )
    start = time.perf_counter()
    usual = sum(usual_loop(counted, found, draw) for draw in range(draws) for _ in METHODS)
    spent = time.perf_counter() - start
    numbers = {"usual loop": {"forwards": counted.forwards, "seconds": spent}}
    counted.forwards, start = 0, time.perf_counter()
    data = encode_set(found, encoder, base=range(PROTOCOL.base), pairs=0)
    encoded = time.perf_counter() - start
    config = RunConfig("generated", METHODS, tuple(f"random:{n}" for n in range(draws)), (0,))
    records = run_records(config, BenchTask(Source(data, "generated"), PROTOCOL))
    assert len({record.cell for record in records}) == runs
    assert usual > 0
    spent = time.perf_counter() - start
    numbers["cala"] = {"forwards": counted.forwards, "seconds": spent, "encoding": encoded}
    for name, row in numbers.items():
        print(f"  {name:<12}{row['forwards']:>10,} forwards{row['seconds']:>9.1f} s")
    print(
        f"  ratio       {counted_ratio(numbers, 'forwards'):>10.1f} ×       "
        f"{counted_ratio(numbers, 'seconds'):>10.1f} ×"
    )
    by_counting()
    return numbers


def counted_ratio(numbers: dict[str, dict[str, float]], what: str) -> float:
    return numbers["usual loop"][what] / numbers["cala"][what]


def by_counting(train: int = 500, test: int = 100, runs: int = 4 * 21, mixed: int = 15_000) -> None:
    """CIFAR-100 as `cala run` does it by default: 4 methods, the canonical draw and 20 others."""
    sessions = range(PROTOCOL.sessions + 1)
    seen = sum(PROTOCOL.base + PROTOCOL.way * session for session in sessions)
    shots = PROTOCOL.way * PROTOCOL.shot * PROTOCOL.sessions
    usual = runs * (seen * test + PROTOCOL.base * train + shots)
    ours = (train + test) * PROTOCOL.n_classes + mixed
    print(
        f"\nCounted for CIFAR-100, {runs} runs: {usual:,} forwards in the usual loop, {ours:,} "
        f"here ({mixed:,} of them mixed images): {usual / ours:.0f} times fewer"
    )


class Counted:
    """Forward passes of an encoder, image by image."""

    def __init__(self, encoder) -> None:
        self.encoder, self.forwards = encoder, 0
        inner = encoder.encode

        def encode(inputs):
            self.forwards += len(inputs)
            return inner(inputs)

        object.__setattr__(encoder, "encode", encode)  # encoders do not change, but for this

    def features(self, split: ImageSplit, rows: np.ndarray) -> np.ndarray:
        """As a loader would bring them: every image prepared again."""
        parts = [
            np.asarray(self.encoder.encode(self.encoder.inputs(pixels)))
            for pixels in split.batches(BATCH, rows)
        ]
        return normalise(np.concatenate(parts))


def usual_loop(counted: Counted, images: ImageSet, seed: int) -> float:
    """Nearest mean, session by session; what a method adds on embeddings is not counted here."""
    train, test = images.train, images.test
    draw = random_draw(PROTOCOL, train.labels, np.ones(len(train), dtype=bool), seed)
    base = np.flatnonzero(train.labels < PROTOCOL.base)
    features = counted.features(train, base)
    means = [features[train.labels[base] == label].mean(0) for label in range(PROTOCOL.base)]
    right = 0.0
    for session in range(PROTOCOL.sessions + 1):
        if session:
            rows = draw.rows[session - 1]
            shots = counted.features(train, rows)
            new = dict.fromkeys(train.labels[rows].tolist())
            means += [shots[train.labels[rows] == label].mean(0) for label in new]
        seen = np.flatnonzero(test.labels < len(means))
        logits = counted.features(test, seen) @ np.stack(means).T
        right = float((logits.argmax(1) == test.labels[seen]).mean())
    return right


def generated(images: int) -> ImageSet:
    """Coloured noise of 32 pixels, a colour for each class."""
    draw = np.random.default_rng(0)
    classes = PROTOCOL.n_classes
    colours = draw.integers(40, 215, (classes, 1, 1, 3))

    def split() -> ImageSplit:
        labels = np.repeat(np.arange(classes), images)
        pixels = colours[labels] + draw.integers(-40, 40, (len(labels), 32, 32, 3))
        names = tuple(map(str, range(len(labels))))
        array = pixels.astype(np.uint8)
        return ImageSplit(labels, names, ArrayPixels(array, np.arange(len(labels))))

    names = tuple(f"class {n}" for n in range(classes))
    return ImageSet("generated", names, split(), split(), Path("generated"), lambda: "generated")


if __name__ == "__main__":
    main()
