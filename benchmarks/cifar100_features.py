"""CIFAR-100 on given embeddings: nearest mean, LA, CALA and cala-plus in both metrics.

    python benchmarks/cifar100_features.py [--data FILE] [--draws 20] [--split test|dev] [--json F]

The canonical draw and random draws of 60 base + 8×(5-way 5-shot); means over draws with 95 %
t-intervals, and differences paired on the same draws. `--split dev` scores training images that
are neither shots nor learned from, and never touches the test set: decisions are made there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from arguments import data_file, target_file, whole_number
from cala.benchmark.config import RunConfig
from cala.benchmark.notes import Watch
from cala.benchmark.runner import holdout_note, run_records
from cala.benchmark.sources import Source
from cala.benchmark.tables import differences_table, results_table
from cala.benchmark.task import BenchTask, parse_draws
from cala.cli.terminal import TerminalTable, console
from cala.data.embeddings import load_embeddings
from cala.data.protocol import load_protocol
from cala.errors import CalaError
from cala.records import Record
from cala.results import Results

FILE = "cifar100_resnet20_features.npz"
METHODS = ("nearest-mean", "la", "cala", "cala-plus")
METRICS = ("cosine", "whitened")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help=f"embeddings file (default: $CALA_DATA/{FILE})")
    parser.add_argument(
        "--draws", type=whole_number(1), default=20, help="random draws (default 20)"
    )
    parser.add_argument("--split", choices=("test", "dev"), default="test")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    args = parser.parse_args()
    path = data_file(args.data, FILE)
    if path is None:
        sys.exit(f"give --data FILE, or set CALA_DATA to the folder that holds {FILE}")
    try:
        run(path, args.draws, args.split, args.seed, args.json)
    except CalaError as error:
        sys.exit(f"error: {error}")


def run(path: Path, draws: int, split: str, seed: int, out: Path | None) -> None:
    started = time.perf_counter()
    screen = console()
    protocol = load_protocol("cifar100")
    data = load_embeddings(path)
    if split == "dev":
        data = data.dev(100, seed=0, keep=[row for rows in protocol.canonical for row in rows])
    names = parse_draws(f"canonical,random:{draws}")
    task = BenchTask(Source(data, path.name), protocol)
    by_metric: dict[str, list[Record]] = {}
    for metric in METRICS:
        config = RunConfig("cifar100", METHODS, tuple(names), (seed,), split, metric)
        with screen.status(metric) as status:
            by_metric[metric] = run_records(config, task, Watch(status=status.update))
    note = holdout_note(task.default)
    if note is not None:
        screen.print(f"note: {note.text}\n")
    both = Results(
        [replace(r, method=f"{r.method} {m}") for m, rows in by_metric.items() for r in rows]
    )
    screen.print(
        TerminalTable(
            results_table(both, ["canonical"], f"Canonical draw, {split} images, percent")
        )
    )
    row = both.session_values("nearest-mean cosine", "accuracy", ["canonical"])
    text = " ".join(f"{value:.3f}" for (value,) in row)
    screen.print(f"nearest-mean cosine per session: {text}\n")
    random = both.random_draws()
    screen.print(
        TerminalTable(results_table(both, random, f"Mean of {draws} random draws, {split} images"))
    )
    for metric in METRICS:
        plain, la, cala, plus = METHODS
        pairs = [(la, plain), (cala, plain), (cala, la), (plus, plain), (plus, la), (plus, cala)]
        title = f"Paired differences, {metric} metric (≈: the interval includes 0)"
        screen.print()
        screen.print(
            TerminalTable(differences_table(Results(by_metric[metric]), random, pairs, title))
        )
    renamed = [
        replace(r, method={"cala-plus whitened": "cala-plus"}.get(r.method, r.method))
        for m, rows in by_metric.items()
        for r in (replace(r, method=f"{r.method} {m}") for r in rows)
    ]
    title = "Paired differences to cala cosine, the paper's: cala-plus as it is used"
    screen.print()
    pair = [("cala-plus", "cala cosine")]
    screen.print(TerminalTable(differences_table(Results(renamed), random, pair, title)))
    screen.print(f"\n{time.perf_counter() - started:.0f} s in all")
    if out is not None:
        out.write_text(json.dumps({"split": split, **both.as_json()}, indent=1))
        screen.print(f"numbers written to {out}")


if __name__ == "__main__":
    main()
