"""What `predict` costs above the matrix products that it cannot do without.

    python benchmarks/predict_speed.py [--threads 1] [--repeats 30] [--json FILE]

1,000 embeddings of 1,280 dimensions against 1,000 classes. The bare products of the cosine metric
are unit length and (1000×1280)(1280×1000); those of the whitened one (1000×1280)(1280×1280) and
(1000×1280)(1280×1000). `predict` checks its input and returns labels. Both take turns in one
process, so that a busy machine slows them alike; the limit is on the ratio of the medians. Adding
one class of five embeddings to the same model is measured as well.
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

import numpy as np
import torch

from arguments import target_file, whole_number
from cala import CalaClassifier

ROWS, CLASSES, DIM, BASE, ONE_BY_ONE = 1000, 1000, 1280, 100, 50
RATIO_LIMIT = 1.3
ADD_LIMIT_MS = 100.0
METHODS = ("nearest-mean", "cala", "cala-plus")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=whole_number(1), default=1, help="torch threads")
    parser.add_argument("--repeats", type=whole_number(3), default=30)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, torch threads: {args.threads}")
    print(
        f"{ROWS:,} embeddings of {DIM:,} dimensions against {CLASSES:,} classes, medians of "
        f"{args.repeats} turns",
        flush=True,
    )
    found = {method: measure(method, args.repeats) for method in args.methods}
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1))
    over = [n["ratio"] > RATIO_LIMIT or n["add ms"] > ADD_LIMIT_MS for n in found.values()]
    sys.exit(any(over))


def measure(method: str, repeats: int) -> dict[str, float]:
    """Times in milliseconds and the ratio of predicting to bare products."""
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(CLASSES, DIM)).astype(np.float32)

    def examples(labels: np.ndarray) -> np.ndarray:
        return centres[labels] + draw.normal(size=(len(labels), DIM)).astype(np.float32)

    y = np.repeat(np.arange(BASE), 4)
    model = CalaClassifier(method).fit(examples(y), y, holdout="all")
    most = np.repeat(np.arange(BASE, CLASSES - ONE_BY_ONE), 5)
    model.partial_fit(examples(most), most)
    adding = []
    for label in range(CLASSES - ONE_BY_ONE, CLASSES):
        names = np.full(5, label)
        shots = examples(names)
        adding.append(seconds(lambda x=shots, n=names: model.partial_fit(x, n)))
    X = examples(np.arange(ROWS) % CLASSES)
    bare = bare_products(X, model)
    calls: tuple[Callable[[], object], ...] = (bare, lambda: model.predict(X))
    turns = [[seconds(call) for call in calls] for _ in range(repeats + 3)][3:]  # 3 to warm up
    products, predicting = (statistics.median(times) for times in zip(*turns, strict=True))
    numbers = {
        "products ms": 1000 * products,
        "predict ms": 1000 * predicting,
        "ratio": predicting / products,
        "add ms": 1000 * statistics.median(adding),
    }
    show(method, numbers)
    return numbers


def bare_products(X: np.ndarray, model: CalaClassifier) -> Callable[[], torch.Tensor]:
    """The products that the model's metric needs, on tensors that are there already."""
    rows = torch.from_numpy(X)
    prototypes = torch.from_numpy(model.prototypes_)
    matrix = model._head.state()["tensors"]
    roots = [tensor for name, tensor in matrix.items() if name.endswith("metric.matrix")]
    if roots:
        return lambda: (rows @ roots[0]) @ prototypes.T
    return lambda: torch.nn.functional.normalize(rows) @ prototypes.T


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def show(method: str, numbers: dict[str, float]) -> None:
    def verdict(over: bool) -> str:
        return "  over its limit" if over else ""

    ratio, add = numbers["ratio"], numbers["add ms"]
    print(
        f"\n{method}\n"
        f"  products {numbers['products ms']:.1f} ms, predict {numbers['predict ms']:.1f} ms: "
        f"{ratio:.2f} times (limit {RATIO_LIMIT}){verdict(ratio > RATIO_LIMIT)}\n"
        f"  partial_fit of one class with 5 embeddings {add:.1f} ms "
        f"(limit {ADD_LIMIT_MS:.0f} ms){verdict(add > ADD_LIMIT_MS)}",
        flush=True,
    )


if __name__ == "__main__":
    main()
