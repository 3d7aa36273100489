"""What commands take to start, and a report to be made; medians of whole processes, in turns.

    python benchmarks/startup.py [--turns 5] [--json FILE]

Seconds of processor time of the process and its children, and how many times that of
`python -c pass`. Wall time is beside it. Where torch or matplotlib is not installed, their rows are
left out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from arguments import target_file, whole_number
from encoding import write_photos
from goals import told
from machine import machine

Command: TypeAlias = "tuple[object, ...]"

CALA = (Path(sys.executable).with_name("cala"),)
HELP_LIMIT = 0.3
AT_ONCE = 0.4  # seconds of processor time beyond those of Python itself
PREDICT = 0.9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=whole_number(1), default=5)
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    args = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        os.environ["CALA_CACHE"] = str(root / "cache")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed modules are compiled
        write_photos(root / "photos", 40)
        run(*CALA, "fit", root / "photos", "-o", root / "model", "--fakes", "feature", "-q")
        small = ("--methods", "nearest-mean,cala", "--draws", "random:3", "--no-report")
        run(*CALA, "run", "cifar100", *small, "--out", root / "run")
        write_photos(root / "new", args.turns + 1, seed=1)  # none was seen, so each is encoded
        # One for each turn: a photo, and a folder without a report.
        new = iter(sorted((root / "new").rglob("*.jpg")))
        empty = (root / f"report {number}" for number in itertools.count())
        known = next((root / "photos").rglob("*.jpg"))
        model = root / "model"
        old = itertools.chain(["class 3"], (f"robin {number}" for number in itertools.count()))
        renamed = (f"robin {number}" for number in itertools.count())
        at_once = {
            "cala --help": (*CALA, "--help"),
            "cala methods": (*CALA, "methods"),
            "cala show": (*CALA, "show", model),
            "cala tune": (*CALA, "tune", model, "--reject", "0.1"),
            "cala rename": (*CALA, "rename", model, old, renamed),
            "cala undo": (*CALA, "undo", model),
            "cala redo": (*CALA, "redo", model),
            "cala data check": (*CALA, "data", "check", root / "photos"),
            "a folder that is not there": (*CALA, "fit", root / "fotos", "-o", root / "no"),
            "a method that is not there": (*CALA, "run", "--methods", "cla"),
            "an engine that is not there": (*CALA, "predict", model, known, "--engine", "x"),
        }
        torch = {"python -c 'import torch'": (sys.executable, "-c", "import torch")}
        reports = {
            "cala report, 2 methods × 3 draws": (*CALA, "report", root / "run", "-o", empty),
            "the same, nothing has changed": (*CALA, "report", root / "run", "-o", root / "again"),
        }
        commands = {
            "python -c pass": (sys.executable, "-c", "pass"),
            **optional("torch", torch),
            "python -c 'import cala'": (sys.executable, "-c", "import cala"),
            **at_once,
            "cala predict, a new photo": (*CALA, "predict", model, new),
            "cala predict, a photo it has seen": (*CALA, "predict", model, known),
            **optional("matplotlib", reports),
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(args.turns + 1):
            for name, command in commands.items():
                parts = (next(part) if isinstance(part, Iterator) else part for part in command)
                times[name].append(run(*parts, fails=name.endswith("not there")))
    used, wall = (
        {name: statistics.median(row[of] for row in rows[1:]) for name, rows in times.items()}
        for of in (0, 1)
    )  # one to warm up
    python = used["python -c pass"]
    print(f"\nmedians of {args.turns} turns: processor time, as a ratio to `pass`, wall time")
    for name, spent in used.items():
        print(f"  {name:<34}{spent:8.2f} s{spent / python:8.1f} ×{wall[name]:8.2f} s")
    slow = max(at_once, key=lambda name: used[name])
    one = used["cala predict, a new photo"]
    goals = told(
        {
            f"cala --help takes {used['cala --help']:.2f} s (goal: {HELP_LIMIT})": used[
                "cala --help"
            ]
            <= HELP_LIMIT,
            f"{slow}: {used[slow] - python:.2f} s beyond Python (goal: {AT_ONCE})": used[slow]
            - python
            <= AT_ONCE,
            f"cala predict of one photo: {one:.2f} s (goal: {PREDICT})": one <= PREDICT,
        }
    )
    if args.json is not None:
        numbers = {"machine": machine(), "cpu seconds": used, "seconds": wall, "goals": goals}
        args.json.write_text(json.dumps(numbers, indent=1))


def optional(library: str, commands: dict[str, Command]) -> dict[str, Command]:
    """Commands for which a library is needed, if it is there."""
    return commands if find_spec(library) is not None else {}


def run(*command: object, fails: bool = False) -> tuple[float, float]:
    """Seconds of processor time and of wall time of a process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if bool(done.returncode) != fails:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


if __name__ == "__main__":
    main()
