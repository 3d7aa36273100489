"""Size on disk of the light install, package by package, and what importing it takes.

    python benchmarks/install_size.py [--extra serve …] [--turns 3] [--json FILE]

Counts cala-learn, what it requires and what these require, as installed for this Python, whatever
else is there. pip compiles what it installs and uv does not, so sizes without bytecode are shown
too. The floor is what a light install must have before a line of cala: the estimator's
scikit-learn, an engine, photos and weights.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

import cala
from arguments import target_file, whole_number
from cala.encoders.registry import PACKAGE
from cala.extras import DISTRIBUTION
from goals import told
from machine import machine
from startup import run

GOAL = 300
FLOOR = ("scikit-learn", "onnxruntime", "pillow", PACKAGE)
BLOCK = 4096
IMPORTS = ("import cala", "import cala.model", "from cala import CalaClassifier")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extra", nargs="*", default=[], help="extras that are counted too")
    parser.add_argument("--turns", type=whole_number(1), default=3, help="of importing")
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    args = parser.parse_args()
    print(machine())
    names = required([f"{DISTRIBUTION}[{','.join(args.extra)}]"])
    sizes = {name: size(name) for name in names}
    floor = required(FLOOR)
    print("\nMB on disk          as installed   without bytecode")
    for name, found in sorted(sizes.items(), key=lambda item: -item[1][0]):
        print(f"  {name:<34}{found[0]:8.1f}{found[1]:8.1f}{'  floor' * (name in floor)}")
    totals = {
        part: [sum(sizes[name][of] for name in some) for of in (0, 1)]
        for part, some in {"all": names, "floor": floor}.items()
    }
    for part, (installed, least) in totals.items():
        print(f"  {part:<34}{installed:8.1f}{least:8.1f}")
    spent = {}
    for code in IMPORTS:
        turns = [run(sys.executable, "-c", code)[0] for _ in range(args.turns + 1)]
        spent[code] = statistics.median(turns[1:])  # one to warm up
        print(f"  {code:<34}{spent[code]:8.2f} s of processor time")
    least = totals["all"][1]
    goals = told({f"light install of {least:.0f} MB (goal: {GOAL})": least <= GOAL})
    if args.json is not None:
        numbers = {"machine": machine(), "MB": sizes, "totals": totals, "cpu seconds": spent}
        args.json.write_text(json.dumps({**numbers, "goals": goals}, indent=1))


def required(wanted: Iterable[str]) -> set[str]:
    """Names of distributions that these requirements bring, with all that they require."""
    waiting, found, seen = [Requirement(one) for one in wanted], set(), set()
    while waiting:
        one = waiting.pop()
        for extra in {"", *one.extras}:
            if (one.name, extra) in seen:
                continue
            seen.add((one.name, extra))
            parts = map(Requirement, distribution(one.name).requires or ())
            waiting += [
                part
                for part in parts
                if part.marker is None or part.marker.evaluate({"extra": extra})
            ]
        found.add(distribution(one.name).metadata["Name"])
    return found


def size(name: str) -> list[float]:
    """MB of a distribution, as installed and without bytecode."""
    files = [Path(path.locate()) for path in distribution(name).files or ()]
    if name == DISTRIBUTION:  # may be editable
        files = [path for path in Path(cala.__file__).parent.rglob("*") if path.is_file()]
    found = {path: -(-path.stat().st_size // BLOCK) * BLOCK for path in files if path.is_file()}
    source = {path: value for path, value in found.items() if "__pycache__" not in path.parts}
    return [sum(part.values()) / 2**20 for part in (found, source)]


if __name__ == "__main__":
    main()
