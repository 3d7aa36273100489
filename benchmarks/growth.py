"""What grows with what: times over three decades of classes and of rows, and their slopes.

    python benchmarks/growth.py [--most 10000] [--json FILE]

A slope of 1 in logarithms is linear; below, a part that does not grow still counts. Adding brings
one class of 5 rows to a model that is there; predicting is of 1,000 rows. Medians: of 3 fits where
these are short, 20 additions, 5 predictions.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings

import numpy as np

from arguments import target_file, whole_number
from cala import CalaClassifier
from cala.errors import FallbackWarning
from machine import machine, use_threads

DIM, ROWS = 128, 1000
ENOUGH = 4.0  # seconds of fitting, after which once more tells nothing new


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=whole_number(100), default=10_000, help="classes")
    parser.add_argument("--method", default="cala-plus")
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    args = parser.parse_args()
    use_threads(1)
    warnings.simplefilter("ignore", FallbackWarning)  # few classes get one shift for all
    print(f"{machine()}\nslope: of the logarithms, from one line to the next; 1 is linear growth")
    measure(args.method, 10, 10)  # what is loaded once is not measured
    classes = [n for n in (10, 100, 1_000, 10_000) if n <= args.most]
    by_class = {n: measure(args.method, n, 10) for n in classes}
    table(f"{args.method}, 10 rows of each class, {DIM} dimensions; by classes", by_class)
    rows = [n for n in (10, 100, 1_000, 10_000) if n <= args.most]
    by_row = {100 * n: measure(args.method, 100, n) for n in rows}
    table(f"{args.method}, 100 classes, {DIM} dimensions; by training rows", by_row)
    wide = [n for n in (10, 100, 1_000) if n <= args.most]
    by_square = {n: measure("cala", n, 10) for n in wide}
    table(f"cala, 10 rows of each class, {DIM} dimensions; by classes", by_square)
    if args.json is not None:
        found = {"classes": by_class, "rows": by_row, "cala": by_square, "machine": machine()}
        args.json.write_text(json.dumps(found, indent=1))


def measure(method: str, classes: int, each: int) -> dict[str, float]:
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((classes + 20, DIM), dtype=np.float32)

    def rows(labels: np.ndarray) -> np.ndarray:
        x = draw.standard_normal((len(labels), DIM), dtype=np.float32)
        x += centres[labels]
        return x

    y = np.repeat(np.arange(classes), each)
    x = rows(y)
    model = CalaClassifier(method)
    fits = []
    while len(fits) < 3 and sum(fits) < ENOUGH:
        fits.append(timed(lambda: model.fit(x, y, holdout="all")))
    found = {"fit s": statistics.median(fits)}
    adding = []
    for label in range(classes, classes + 20):
        shots = rows(np.full(5, label))
        adding.append(timed(lambda s=shots, n=label: model.partial_fit(s, [n] * 5)))
    found["add a class ms"] = 1000 * statistics.median(adding)
    queries = rows(draw.integers(0, classes, ROWS))
    model.predict(queries)
    times = [timed(lambda: model.predict(queries)) for _ in range(5)]
    found["predict ms"] = 1000 * statistics.median(times)
    return found


def timed(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def table(title: str, found: dict[int, dict[str, float]]) -> None:
    names = list(next(iter(found.values())))
    print(f"\n{title}\n  {'':>12}" + "".join(f"{name:>18}" for name in names))
    before = None
    for size, row in found.items():
        print(f"  {size:>12,}" + "".join(f"{row[name]:18.3g}" for name in names), flush=True)
        if before is not None:
            steps = np.log10(size / before[0])
            slopes = (np.log10(row[n] / before[1][n]) / steps for n in names)
            print(f"  {'slope':>12}" + "".join(f"{slope:18.2f}" for slope in slopes))
        before = size, row


if __name__ == "__main__":
    main()
