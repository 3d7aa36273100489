"""What each part of cala-plus, and each reading of the paper, is worth on development queries.

    python benchmarks/ablations.py [--data FILE] [--draws 20] [--only WORD] [--json FILE]

CIFAR-100 embeddings, 60 base + 40 novel classes, 5 shots. Queries are training images that are
neither shots nor learned from; the test set is never read. Differences are paired on the same
draws against the first row of each block. Only the last session is scored.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from arguments import data_file, target_file, whole_number
from cala.benchmark.runner import fit_method
from cala.cli.terminal import console
from cala.data.embeddings import Embeddings, load_embeddings
from cala.data.protocol import ShotDraw, load_protocol, random_draw
from cala.errors import CalaError
from cala.metrics import session_metrics
from cala.statistics import mean_interval, paired

FILE = "cifar100_resnet20_features.npz"
PROTOCOL = load_protocol("cifar100")
COLUMNS = ("ausuc", "accuracy", "hm", "base", "novel")

NO_SPREAD = {"adapter": {"keep_spread": False}}

Variant = tuple[str, str, dict[str, Any]]
BLOCKS: dict[str, list[Variant]] = {
    "cala: readings of the paper (cosine metric)": [
        ("cala", "cala", {}),
        ("nearest mean", "nearest-mean", {}),
        ("LA", "la", {}),
        ("inputs raw", "cala", {"adapter": {"inputs": "raw"}}),
        ("inputs softmax, τ=1 (as printed)", "cala", {"adapter": {"inputs": "softmax"}}),
        ("inputs softmax, τ=16", "cala", {"adapter": {"inputs": "softmax", "tau": 16.0}}),
        ("loss linear-mean", "cala", {"adapter": {"loss": "linear-mean"}}),
        ("loss literal (as printed)", "cala", {"adapter": {"loss": "literal"}}),
        ("fake queries only", "cala", {"adapter": {"base_queries": 0}}),
        ("fakes from embeddings", "cala", {"fakes": None}),
        ("the same, Eq. 1 to the letter", "cala", {"fakes": None, **NO_SPREAD}),
        ("10 episodes", "cala", {"adapter": {"episodes": 10}}),
        ("60 episodes", "cala", {"adapter": {"episodes": 60}}),
        ("SGD", "cala", {"adapter": {"optimiser": "sgd"}}),
    ],
    "cala-plus: one change at a time": [
        ("cala-plus", "cala-plus", {}),
        ("LA on the same host and metric", "calibrated-mean+la", {"metric": "whitened"}),
        ("no adapter", "calibrated-mean", {"metric": "whitened"}),
        ("without concentration", "nearest-mean+cala-plus", {"metric": "whitened"}),
        ("cosine metric", "cala-plus", {"metric": "cosine"}),
        ("shrinkage 0.5", "cala-plus", {"shrinkage": 0.5}),
        ("shrinkage 2", "cala-plus", {"shrinkage": 2.0}),
        ("shrinkage 8", "cala-plus", {"shrinkage": 8.0}),
        ("scale 16", "cala-plus", {"scale": 16.0}),
        ("scale 20", "cala-plus", {"scale": 20.0}),
        ("MLP on sorted similarities", "calibrated-mean+cala", {"metric": "whitened"}),
        ("trained with 5 shots only", "cala-plus", {"adapter": {"shots": (5,)}}),
        ("fakes from embeddings", "cala-plus", {"fakes": None}),
        ("the same, Eq. 1 to the letter", "cala-plus", {"fakes": None, **NO_SPREAD}),
    ],
    "whitened nearest mean with a linear adapter, before the rest": [
        (
            "shrinkage 2, scale 16, no concentration",
            "nearest-mean+cala-plus",
            {"metric": "whitened", "shrinkage": 2.0, "scale": 16.0},
        ),
        ("cala-plus", "cala-plus", {}),
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help=f"embeddings file (default: $CALA_DATA/{FILE})")
    parser.add_argument(
        "--draws", type=whole_number(1), default=20, help="random draws (default 20)"
    )
    parser.add_argument("--only", default="", help="blocks whose title contains this")
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    args = parser.parse_args()
    if not any(args.only in title for title in BLOCKS):
        parser.error(f"--only {args.only!r}: no block has it in its title ({'; '.join(BLOCKS)})")
    path = data_file(args.data, FILE)
    if path is None:
        sys.exit(f"give --data FILE, or set CALA_DATA to the folder that holds {FILE}")
    try:
        data = load_embeddings(path)
    except CalaError as error:
        sys.exit(f"error: {error}")
    data = data.dev(100, seed=0, keep=[row for rows in PROTOCOL.canonical for row in rows])
    draws = [
        random_draw(PROTOCOL, data.y_train, data.learnable(), seed) for seed in range(args.draws)
    ]
    screen = console()
    numbers: dict[str, Any] = {}
    for title, variants in BLOCKS.items():
        if args.only not in title:
            continue
        found: dict[str, dict[str, list[float]]] = {}
        for name, method, options in variants:
            with screen.status(name):
                found[name] = evaluate(method, options, data, draws)
        screen.print(block_table(title, found))
        screen.print()
        numbers[title] = {
            name: {column: asdict(mean_interval(rows[column])) for column in COLUMNS}
            for name, rows in found.items()
        }
    if args.json is not None:
        args.json.write_text(json.dumps(numbers, indent=1))


def evaluate(
    method: str, options: dict[str, Any], data: Embeddings, draws: list[ShotDraw]
) -> dict[str, list[float]]:
    """Percentages after the last session, one per draw."""
    options = dict(options)
    if "fakes" in options:
        data = Embeddings(**{**vars(data), "fakes": options.pop("fakes")})
    head = fit_method(method, data, PROTOCOL, **options)
    unit = head.embed(data.x_test)
    sessions = []
    for draw in draws:
        rows = np.concatenate(draw.rows)
        grown = head.fork().add(data.x_train[rows], data.y_train[rows])
        sessions.append(session_metrics(grown.unit_logits(unit), data.y_test, PROTOCOL.base))
    return {column: [100 * getattr(s, column) for s in sessions] for column in COLUMNS}


def block_table(title: str, found: dict[str, dict[str, list[float]]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("")
    for heading in ("AUSUC", "last", "HM", "base", "novel"):
        table.add_column(heading, justify="right")
    reference = next(iter(found.values()))
    for name, rows in found.items():
        cells = []
        for column in COLUMNS:
            text = f"{mean_interval(rows[column]).mean:.2f}"
            if rows is not reference:
                change = paired(rows[column], reference[column])
                text += f"\n{change.mean:+.2f}±{change.half:.2f}"
            cells.append(text)
        table.add_row(name, *cells)
    return table


if __name__ == "__main__":
    main()
