"""How long commands take to start, and a report to be made; medians of whole processes, in turns.

python benchmarks/startup.py [--turns 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from arguments import target_file, whole_number
from encoding import write_photos
from goals import told
from machine import machine

CALA = (Path(sys.executable).with_name("cala"),)
HELP_LIMIT = 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=whole_number(1), default=5)
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    args = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        os.environ["CALA_CACHE"] = str(root / "cache")
        write_photos(root / "photos", 40)
        run(*CALA, "fit", root / "photos", "-o", root / "model", "--fakes", "feature", "-q")
        small = ("--methods", "nearest-mean,cala", "--draws", "random:3", "--no-report")
        run(*CALA, "run", "cifar100", *small, "--out", root / "run")
        write_photos(root / "new", args.turns + 1, seed=1)  # none was seen, so each is encoded
        # One for each turn: a photo, and a folder without a report.
        new = iter(sorted((root / "new").rglob("*.jpg")))
        empty = (root / f"report {number}" for number in itertools.count())
        known = next((root / "photos").rglob("*.jpg"))
        commands = {
            "python -c pass": (sys.executable, "-c", "pass"),
            "python -c 'import torch'": (sys.executable, "-c", "import torch"),
            "cala --help": (*CALA, "--help"),
            "cala methods": (*CALA, "methods"),
            "cala predict, a new photo": (*CALA, "predict", root / "model", new),
            "cala predict, a photo it has seen": (*CALA, "predict", root / "model", known),
            "cala report, 2 methods × 3 draws": (*CALA, "report", root / "run", "-o", empty),
            "the same, nothing has changed": (*CALA, "report", root / "run", "-o", root / "again"),
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(args.turns + 1):
            for name, command in commands.items():
                parts = (next(part) if isinstance(part, Iterator) else part for part in command)
                times[name].append(run(*parts))
    found = {name: statistics.median(spent[1:]) for name, spent in times.items()}  # one to warm up
    helped = found["cala --help"]
    print(f"\nseconds, medians of {args.turns} turns")
    for name, spent in found.items():
        print(f"  {name:<34}{spent:8.2f} s")
    goal = f"cala --help takes {helped:.2f} s (goal: {HELP_LIMIT}, without torch)"
    goals = told({goal: helped <= HELP_LIMIT})
    if args.json is not None:
        numbers = {"machine": machine(), "seconds": found, "goals": goals}
        args.json.write_text(json.dumps(numbers, indent=1))


def run(*command: object) -> float:
    start = time.perf_counter()
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    spent = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    return spent


if __name__ == "__main__":
    main()
