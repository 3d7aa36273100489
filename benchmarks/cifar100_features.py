"""CIFAR-100 on given embeddings: nearest mean, LA, CALA and cala-plus in both metrics.

    python benchmarks/cifar100_features.py [--data FILE] [--draws 20] [--split test|dev] [--json F]

The canonical draw and random draws of 60 base + 8×(5-way 5-shot); means over draws with 95 %
t-intervals, and differences paired on the same draws. `--split dev` scores training images that
are neither shots nor learned from, and never touches the test set: decisions are made there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from cala.benchmark.runner import compare
from cala.benchmark.terminal import as_json, console, differences_table, results_table
from cala.data.embeddings import load_embeddings
from cala.data.protocol import canonical_draw, load_protocol, random_draw
from cala.errors import CalaError

FILE = "cifar100_resnet20_features.npz"
METHODS = ("nearest-mean", "la", "cala", "cala-plus")
METRICS = ("cosine", "whitened")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help=f"embeddings file (default: $CALA_DATA/{FILE})")
    parser.add_argument("--draws", type=int, default=20, help="random draws (default 20)")
    parser.add_argument("--split", choices=("test", "dev"), default="test")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args()
    if args.draws < 1:
        parser.error(f"--draws is {args.draws}: give at least 1")
    if args.data is None and "CALA_DATA" not in os.environ:
        sys.exit(f"give --data FILE, or set CALA_DATA to the folder that holds {FILE}")
    path = args.data or Path(os.environ["CALA_DATA"]) / FILE
    try:
        run(path, args.draws, args.split, args.seed, args.json)
    except CalaError as error:
        sys.exit(f"error: {error}")


def run(path: Path, draws: int, split: str, seed: int, out: Path | None) -> None:
    started = time.perf_counter()
    screen = console()
    protocol = load_protocol("cifar100")
    data = load_embeddings(path)
    canonical = canonical_draw(protocol)
    if split == "dev":
        keep = [row for rows in protocol.canonical for row in rows]
        data = data.dev(100, seed=0, keep=keep)
    chosen = [random_draw(protocol, data.y_train, data.learnable(), i) for i in range(draws)]
    methods = {
        f"{method} {metric}": {"name": method, "metric": metric}
        for metric in METRICS
        for method in METHODS
    }
    results = compare(
        methods, data, protocol, [canonical, *chosen], seed=seed, progress=screen.print
    )

    screen.print()
    screen.print(results_table(results, ["canonical"], f"Canonical draw, {split} images, percent"))
    sessions = results["nearest-mean cosine"]["canonical"]
    row = " ".join(f"{100 * s.accuracy:.3f}" for s in sessions)
    screen.print(f"nearest-mean cosine per session: {row}\n")
    names = [draw.name for draw in chosen]
    screen.print(results_table(results, names, f"Mean of {draws} random draws, {split} images"))
    for metric in METRICS:
        plain, la, cala, plus = METHODS
        pairs = [(la, plain), (cala, plain), (cala, la), (plus, plain), (plus, la), (plus, cala)]
        within = {m: results[f"{m} {metric}"] for m in METHODS}
        title = f"Paired differences, {metric} metric (≈: the interval includes 0)"
        screen.print()
        screen.print(differences_table(within, names, pairs, title))
    across = {"cala-plus": results["cala-plus whitened"], "cala cosine": results["cala cosine"]}
    title = "Paired differences, cala-plus as it is used against the paper's method"
    screen.print()
    screen.print(differences_table(across, names, [("cala-plus", "cala cosine")], title))
    screen.print(f"\n{time.perf_counter() - started:.0f} s in all")
    if out is not None:
        content = {"split": split, "random": as_json(results, names)}
        content["canonical"] = as_json(results, ["canonical"])
        out.write_text(json.dumps(content, indent=1))
        screen.print(f"numbers written to {out}")


if __name__ == "__main__":
    main()
