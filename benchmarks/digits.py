"""The whole method in seconds: scikit-learn's digits, 6 base classes, two 2-way 5-shot sessions.

    python benchmarks/digits.py [--draws 20] [--seed 0] [--json FILE]

The "encoder" is the identity (64 pixels), the data come with scikit-learn, nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
from sklearn.datasets import load_digits

from arguments import target_file, whole_number
from cala.benchmark.config import RunConfig
from cala.benchmark.notes import Watch
from cala.benchmark.runner import run_records
from cala.benchmark.sources import Source
from cala.benchmark.tables import differences_table, results_table
from cala.benchmark.task import BenchTask, parse_draws
from cala.cli.terminal import TerminalTable, console
from cala.core.cala import mix
from cala.core.fakes import FakePool, draw_pairs, draw_parents
from cala.core.rows import ClassRows
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol
from cala.results import Results

PROTOCOL = Protocol(name="digits", base=6, way=2, shot=5, sessions=2)
METHODS = ("nearest-mean", "la", "cala", "cala-plus")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--draws", type=whole_number(1), default=20, help="random draws of the shots"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    args = parser.parse_args()
    started = time.perf_counter()
    screen = console()
    data = load(args.seed)
    names = parse_draws(f"random:{args.draws}")
    config = RunConfig("digits", METHODS, tuple(names), (args.seed,))
    with screen.status("training adapters on fake classes") as status:
        task = BenchTask(Source(data, "digits"), PROTOCOL)
        results = Results(run_records(config, task, Watch(status=status.update)))
    screen.print(
        "scikit-learn's digits as raw pixels: 6 base classes, then twice 2 novel ones\n"
        "from 5 images each. Percent of held-out images of all classes seen so far;\n"
        "FPR is the share of novel images taken for a base class (lower is better).\n"
    )
    title = f"Mean of {args.draws} draws (± 95 % interval {results.covered(names)})"
    screen.print(TerminalTable(results_table(results, names, title)))
    screen.print()
    pairs = [(name, "nearest-mean") for name in METHODS[1:]]
    title = "Difference to nearest-mean on the same draws (≈: the interval includes 0)"
    screen.print(TerminalTable(differences_table(results, names, pairs, title)))
    screen.print(f"\n{conclusion(results, names)}")
    screen.print(f"{time.perf_counter() - started:.0f} s")
    if args.json is not None:
        args.json.write_text(json.dumps(results.as_json(), indent=1))
        screen.print(f"numbers written to {args.json}")


def load(seed: int) -> Embeddings:
    """Every other image of each class is for learning; fake classes are mixed images."""
    digits = load_digits()
    x, labels = digits.data.astype(np.float32), digits.target
    rank = np.empty(len(labels), dtype=int)
    for label in range(10):
        rows = np.flatnonzero(labels == label)
        rank[rows] = np.arange(len(rows))
    train = rank % 2 == 0
    base = train & (labels < PROTOCOL.base)
    rng = np.random.default_rng(seed)
    pairs = draw_pairs(PROTOCOL.base, 15, rng)
    rows = ClassRows.of(x[base], labels[base], PROTOCOL.base)
    left, right, lam = draw_parents(rows, pairs, 25, rng)
    mixed = mix(x[base][left], x[base][right], lam[..., None].astype(np.float32))
    return Embeddings(
        x_train=x[train],
        y_train=labels[train],
        x_test=x[~train],
        y_test=labels[~train],
        fakes=FakePool(mixed, pairs),
        holdout=np.ones(train.sum(), dtype=bool),
    )


def conclusion(results: Results, draws: list[str]) -> str:
    """One sentence on what the table shows, made from the numbers."""
    novel, base, last = (
        f"{e.mean:+.1f}" + ("" if e.n < 2 else f" ± {e.half:.1f}")
        for column in ("novel", "base", "last")
        for e in [results.difference("cala-plus", "nearest-mean", column, draws)]
    )
    return (
        f"cala-plus against nearest mean: {novel} points on novel classes, {base} on base ones, "
        f"{last} over all."
    )


if __name__ == "__main__":
    main()
