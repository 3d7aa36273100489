"""Paired differences between all methods of several runs with the same draws and test images.

    cala run --out a && cala run --metric whitened --out b
    python benchmarks/paired.py cosine=a whitened=b -o docs/results/cifar100-paired.json

Methods are named RUN/METHOD; `cala compare a b --reference "a: cala"` shows the same differences.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path

from cala.cli.compare import draws_and_images
from cala.records import read_run
from cala.results import Results
from modern_encoders import named

COLUMNS = ("last", "avg", "hm", "ausuc")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=named, nargs="+", metavar="NAME=RUN")
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    runs = {name: read_run(Path(path)) for name, path in options.runs}
    if len(set(draws_and_images(runs).values())) > 1:
        parser.error("these runs have different draws or test images")
    records = [
        replace(record, method=f"{name}/{record.method}")
        for name, run in runs.items()
        for record in run.records
    ]
    results = Results(records)
    draws = results.random_draws()
    found: dict[str, dict[str, dict[str, list[float]]]] = {m: {} for m in results.methods}
    for method, reference in permutations(results.methods, 2):
        cells = {c: results.difference(method, reference, c, draws) for c in COLUMNS}
        numbers = {c: [round(x.mean, 4), round(x.half, 4), x.n] for c, x in cells.items()}
        found[method][reference] = numbers
    about = {"columns": "mean, half width of the 95 % interval, number of draws"}
    lines = [f" {json.dumps(m)}: {json.dumps(numbers)}" for m, numbers in found.items()]
    text = f'{{"about": {json.dumps(about)}, "paired": {{\n' + ",\n".join(lines) + "\n}}\n"
    options.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
