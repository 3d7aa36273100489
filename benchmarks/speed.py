"""How long teaching takes: adapter training, and adding one class to a large model.

    python benchmarks/speed.py [--data FILE] [--threads 1] [--json FILE]

Adapter training is measured on CIFAR-100 embeddings (--data, or in the folder $CALA_DATA), without
either on random embeddings of the same shape; it includes prototypes, metric, episodes and
selection. Adding a class is measured on a model with 1,000 classes of 1,280 dimensions. Whatever
takes longer than its limit is marked, and the script then ends with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from arguments import data_file, target_file, whole_number
from cala import CalaClassifier
from cala.benchmark.runner import fit_method
from cala.cli.terminal import console
from cala.data.embeddings import Embeddings, load_embeddings
from cala.data.protocol import Protocol
from cala.errors import CalaError
from machine import use_threads

FILE = "cifar100_resnet20_features.npz"
PROTOCOL = Protocol(name="60+8×5", base=60, way=5, shot=5, sessions=8)
LIMITS = {"la": 3.0, "cala": 10.0, "cala-plus": 3.0}
ADD_LIMIT_MS = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help=f"embeddings file (default: $CALA_DATA/{FILE})")
    parser.add_argument("--threads", type=whole_number(1), default=1, help="(default 1)")
    parser.add_argument("--repeats", type=whole_number(1), default=3)
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    args = parser.parse_args()
    use_threads(args.threads)
    screen = console()
    path = data_file(args.data, FILE)
    try:
        data = random_embeddings() if path is None else load_embeddings(path)
    except CalaError as error:
        sys.exit(f"error: {error}")
    kind = "random embeddings" if path is None else path.name
    screen.print(f"{platform.machine()}, {os.cpu_count()} CPUs, threads: {args.threads}")
    screen.print(f"\nFitting 60 base classes, {len(data.x_train) * 6 // 10} rows ({kind}), median")
    numbers: dict[str, float] = {}
    over: list[str] = []

    def measured(name: str, width: int, value: float, unit: str, limit: float) -> None:
        late = value > limit
        mark = "   OVER ITS LIMIT" if late else ""
        screen.print(f"  {name:<{width}} {value:6.2f} {unit}   (limit {limit:.0f} {unit}){mark}")
        if late:
            over.append(f"{name} ({value:.2f} {unit}, limit {limit:.0f} {unit})")

    for method, limit in LIMITS.items():
        seconds = median_seconds(lambda m=method: fit_method(m, data, PROTOCOL), args.repeats)
        numbers[f"fit {method} s"] = seconds
        measured(method, 10, seconds, "s", limit)
    screen.print("\npartial_fit of one 5-shot class into 1,000 classes × 1,280 dimensions, median")
    for method in ("nearest-mean", "cala", "cala-plus"):
        milliseconds = adding_one_class(method)
        numbers[f"partial_fit {method} ms"] = milliseconds
        measured(method, 13, milliseconds, "ms", ADD_LIMIT_MS)
    if args.json is not None:
        args.json.write_text(json.dumps(numbers, indent=1))
    if over:
        sys.exit(f"over its limit: {', '.join(over)}")


def median_seconds(call: Callable[[], object], repeats: int) -> float:
    """Median wall-clock time, after one call that warms up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def random_embeddings() -> Embeddings:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(100), 500)
    x = (rng.normal(size=(100, 64))[y] + rng.normal(size=(len(y), 64))).astype(np.float32)
    return Embeddings(x, y, x, y)


def adding_one_class(method: str) -> float:
    """Median milliseconds of 30 additions; checks and β included."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(1030, 1280)).astype(np.float32)
    y = np.repeat(np.arange(1000), 4)
    x = centres[y] + rng.normal(size=(len(y), 1280)).astype(np.float32)
    model = CalaClassifier(method, expected_novel=30).fit(x, y, holdout="all")
    times = []
    for label in range(1000, 1030):
        shots = centres[[label] * 5] + rng.normal(size=(5, 1280)).astype(np.float32)
        start = time.perf_counter()
        model.partial_fit(shots, [label] * 5)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


if __name__ == "__main__":
    main()
