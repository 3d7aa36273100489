"""How long commands take to start, and a report to be made; medians of whole processes, in turns.

python benchmarks/startup.py [--turns 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from arguments import target_file, whole_number
from encoding import write_photos
from machine import machine

CALA = (sys.executable, "-m", "cala")


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
        photo = next((root / "photos").rglob("*.jpg"))
        commands = {
            "python -c pass": (sys.executable, "-c", "pass"),
            "python -c 'import torch'": (sys.executable, "-c", "import torch"),
            "cala --help": (*CALA, "--help"),
            "cala methods": (*CALA, "methods"),
            "cala predict, one photo": (*CALA, "predict", root / "model", photo),
            "cala report, 2 methods × 3 draws": (*CALA, "report", root / "run", "-o", root / "r"),
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(args.turns + 1):
            for name, command in commands.items():
                times[name].append(run(*command))
    found = {name: statistics.median(spent[1:]) for name, spent in times.items()}  # one to warm up
    print(f"\nseconds, medians of {args.turns} turns")
    for name, spent in found.items():
        print(f"  {name:<34}{spent:8.2f} s")
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1))


def run(*command: object) -> float:
    start = time.perf_counter()
    subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
