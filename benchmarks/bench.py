"""All tables of docs/performance.md, one after the other: `make bench`.

    python benchmarks/bench.py [--out FOLDER] [--only NAME …] [--quick]

Each part is a script of its own that names the machine and takes turns with what it is compared
with. Numbers go to FOLDER as JSON. A part that fails or misses a goal is named at the end, and the
others go on. --quick makes every part as small as it can be, to see that all of them work.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
# name: script, its arguments, what makes it quick
PARTS: dict[str, tuple[str, list[str], list[str]]] = {
    "growing": (
        "growing.py",
        [],
        [
            "--cap",
            "5",
            "--cases",
            "small",
            "--draws",
            "1",
            "--only",
            "cala-plus",
            "NearestCentroid",
        ],
    ),
    "predict": ("predict_speed.py", [], ["--repeats", "3", "--methods", "nearest-mean"]),
    "growth": ("growth.py", [], ["--most", "100"]),
    "protocol": ("whole_protocol.py", [], ["--draws", "1", "--images", "10"]),
    "training": ("training_throughput.py", ["--seconds", "8"], ["--seconds", "0.1"]),
    "encoding": ("encoding.py", [], ["--photos", "8", "--turns", "1"]),
    "startup": ("startup.py", [], ["--turns", "1"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="for the numbers")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    began, missed = time.monotonic(), []
    for name in args.only:
        script, usual, quick = PARTS[name]
        numbers = args.out / f"{name}.json"
        print(f"\n== {name}: benchmarks/{script} {' '.join(quick if args.quick else usual)}")
        numbers.unlink(missing_ok=True)
        start = time.monotonic()
        command = [sys.executable, str(HERE / script), *(quick if args.quick else usual)]
        if subprocess.run([*command, "--json", str(numbers)], check=False).returncode:
            missed.append(name)
        print(f"   ({time.monotonic() - start:.0f} s)", flush=True)
    print(f"\nall in {(time.monotonic() - began) / 60:.1f} minutes; numbers in {args.out}")
    if missed:
        print(f"failed, or missed a goal: {', '.join(missed)}")
    sys.exit(any(not (args.out / f"{name}.json").exists() for name in args.only))


if __name__ == "__main__":
    main()
