"""What `predict` costs above the matrix products that it cannot do without.

    python benchmarks/predict_speed.py [--threads 1] [--repeats 30] [--json FILE]

10,000 embeddings against few and many classes. The bare products of the cosine metric are unit
length and (n×d)(d×C); those of the whitened one (n×d)(d×d) and (n×d)(d×C). `predict` checks its
input and returns labels. Both take turns in one process, so that a busy machine slows them alike;
the goal is on the ratio of the medians. Adding one class of five embeddings to the same model is
measured as well.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from arguments import target_file, whole_number
from cala import CalaClassifier
from cala.core.cala import normalise
from goals import told
from machine import machine, use_threads

ROWS, ONE_BY_ONE = 10_000, 20
SIZES = ((60, 64), (200, 128), (1_000, 512), (1_000, 1_280), (10_000, 512))  # classes, dimensions
ENOUGH = 6.0  # seconds after which no more turns are needed
RATIO_LIMIT = 1.3
ADD_LIMIT_MS = 100.0
METHODS = ("nearest-mean", "cala", "cala-plus")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=whole_number(1), default=1, help="(default 1)")
    parser.add_argument("--repeats", type=whole_number(3), default=30)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--most", type=whole_number(60), default=10_000, help="classes")
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    args = parser.parse_args()
    use_threads(args.threads)
    print(
        f"{machine()}\n{ROWS:,} embeddings, medians of up to {args.repeats} turns, milliseconds; "
        "products:\nthe matrix products that the metric needs, alone\n"
        f"  {'':<16}{'classes':>8}{'dimensions':>12}{'products':>10}{'predict':>10}{'ratio':>8}"
        f"{'a class added':>15}{'turns':>7}",
        flush=True,
    )
    sizes = [size for size in SIZES if size[0] <= args.most]
    found = [measure(m, *size, args.repeats) for size in sizes for m in args.methods]
    goals = {
        f"{n['method']}, {n['classes']:,} classes × {n['dimensions']:,}: predicting takes "
        f"{n['ratio']:.2f} times the products (goal: {RATIO_LIMIT})": n["ratio"] <= RATIO_LIMIT
        for n in found
    }
    most = max(n["add ms"] for n in found)
    goals[f"a class is added in {most:.1f} ms (goal: {ADD_LIMIT_MS:.0f})"] = most <= ADD_LIMIT_MS
    numbers = {"machine": machine(), "rows": found, "goals": told(goals)}
    if args.json is not None:
        args.json.write_text(json.dumps(numbers, indent=1))


def measure(method: str, classes: int, dim: int, repeats: int) -> dict[str, Any]:
    """Times in milliseconds and the ratio of predicting to bare products."""
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((classes, dim), dtype=np.float32)
    base = min(100, classes // 2)

    def examples(labels: np.ndarray) -> np.ndarray:
        return centres[labels] + draw.standard_normal((len(labels), dim), dtype=np.float32)

    y = np.repeat(np.arange(base), 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # too few rows for an adapter of their own: only for speed
        model = CalaClassifier(method).fit(examples(y), y, holdout="all")
    most = np.repeat(np.arange(base, classes - ONE_BY_ONE), 5)
    model.partial_fit(examples(most), most)
    adding = []
    for label in range(classes - ONE_BY_ONE, classes):
        names = np.full(5, label)
        shots = examples(names)
        adding.append(seconds(lambda x=shots, n=names: model.partial_fit(x, n)))
    X = examples(np.arange(ROWS) % classes)
    bare = bare_products(X, model)
    calls: tuple[Callable[[], object], ...] = (bare, lambda: model.predict(X))
    turns: list[list[float]] = [[seconds(call) for call in calls]]  # to warm up
    while len(turns) <= repeats and (len(turns) < 4 or sum(map(sum, turns)) < ENOUGH):
        turns.append([seconds(call) for call in calls])
    products, predicting = (statistics.median(times) for times in zip(*turns[1:], strict=True))
    numbers = {
        "method": method,
        "classes": classes,
        "dimensions": dim,
        "products ms": 1000 * products,
        "predict ms": 1000 * predicting,
        "ratio": predicting / products,
        "add ms": 1000 * statistics.median(adding),
        "turns": len(turns) - 1,
    }
    print(
        f"  {method:<16}{classes:>8,}{dim:>12,}{1000 * products:>10.1f}{1000 * predicting:>10.1f}"
        f"{numbers['ratio']:>8.2f}{numbers['add ms']:>15.1f}{numbers['turns']:>7}",
        flush=True,
    )
    return numbers


def bare_products(X: np.ndarray, model: CalaClassifier) -> Callable[[], np.ndarray]:
    """The products that the model's metric needs, on arrays that are there already."""
    prototypes = model.prototypes_
    learned = model.head_.state()["tensors"]
    roots = [array for name, array in learned.items() if name.endswith("metric.matrix")]
    if roots:
        return lambda: (X @ roots[0]) @ prototypes.T
    return lambda: normalise(X) @ prototypes.T


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
