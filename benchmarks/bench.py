"""All tables of docs/performance.md, one after the other: `make bench`.

    python benchmarks/bench.py [--out FOLDER] [--only NAME …] [--minutes 30] [--quick]

Each part is a script of its own that names the machine and takes turns with what it is compared
with. Numbers go to FOLDER as JSON. A part that fails is named at the end, and the others go on;
goals that were missed are listed. The last part is given the minutes that are left. --quick makes
every part as small as it can be, to see that all of them work.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
SPARE = 0.5  # minutes, for the last part to end in
REST = "rest"  # stands for the minutes that are left
# name: script, its arguments, what makes it quick
PARTS: dict[str, tuple[str, list[str], list[str]]] = {
    "startup": ("startup.py", [], ["--turns", "1"]),
    "install": ("install_size.py", [], ["--turns", "1"]),
    "predict": ("predict_speed.py", [], ["--repeats", "3", "--most", "60"]),
    "growth": ("growth.py", [], ["--most", "100"]),
    "protocol": ("whole_protocol.py", [], ["--draws", "1", "--images", "10"]),
    "training": (
        "training_throughput.py",
        ["--seconds", "6"],
        ["--seconds", "0.1", "--cases", "resnet20 at 32"],
    ),
    "encoding": ("encoding.py", [], ["--photos", "8", "--turns", "1"]),
    "growing": (
        "growing.py",
        ["--minutes", REST],
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
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="for the numbers")
    parser.add_argument(
        "--only", nargs="*", choices=PARTS, default=list(PARTS), help="some of the parts"
    )
    parser.add_argument("--minutes", type=float, default=30, help="for everything")
    parser.add_argument(
        "--quick", action="store_true", help="see that all parts work; figures mean nothing"
    )
    args = parser.parse_args()
    if args.quick:
        print("--quick: these runs are too short to be quoted, and no goal is judged by them")
    args.out.mkdir(parents=True, exist_ok=True)
    began, failed, missed = time.monotonic(), [], []
    for name in args.only:
        script, usual, quick = PARTS[name]
        numbers = args.out / f"{name}.json"
        numbers.unlink(missing_ok=True)
        start = time.monotonic()
        left = f"{max(1.0, args.minutes - (start - began) / 60 - SPARE):.1f}"
        options = [
            left if option is REST else option for option in (quick if args.quick else usual)
        ]
        print(f"\n== {name}: benchmarks/{script} {' '.join(options)}", flush=True)
        command = [sys.executable, str(HERE / script), *options, "--json", str(numbers)]
        if subprocess.run(command, check=False).returncode or not numbers.exists():
            failed.append(name)
        if numbers.exists():
            goals = json.loads(numbers.read_text()).get("goals", {})
            missed += [f"{name}: {goal}" for goal, met in goals.items() if not met]
        print(f"   ({time.monotonic() - start:.0f} s)", flush=True)
    print(f"\nall in {(time.monotonic() - began) / 60:.1f} minutes; numbers in {args.out}")
    for goal in [] if args.quick else missed:
        print(f"goal missed: {goal}")
    if failed:
        print(f"failed: {', '.join(failed)}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
