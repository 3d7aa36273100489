"""Embeddings that do not fit into memory: fit, add sessions and score from shards.

    python benchmarks/beyond_memory.py            # 200,000 × 256, seconds
    python benchmarks/beyond_memory.py --scale    # 10,000,000 × 512, 10 GB on the disk

Generates a folder of shards in a temporary folder (class centres plus noise; a pool of noise rows
is used again and again, drawing 5 billion numbers would take longer than the work), runs each
method on it in a fresh process, and deletes it. The fresh process may hold 2 GB of data: the limit
is set with RLIMIT_DATA, which counts all memory that a process can write to, before cala is
loaded, so an allocation beyond it fails. Peak is the largest resident memory, libraries included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from arguments import target_file
from machine import machine
from memory import peak

GB = 10**9
LIMIT = 2 * GB
SHARD = 65_536
METHODS = ("nearest-mean", "cala", "cala-plus")


@dataclass(frozen=True)
class Size:
    """Rows and dimension of what is generated, and the protocol on it."""

    train: int
    test: int
    dim: int
    base: int
    way: int
    sessions: int

    @property
    def classes(self) -> int:
        return self.base + self.way * self.sessions


SMALL = Size(180_000, 20_000, 256, base=200, way=10, sessions=5)
LARGE = Size(9_500_000, 500_000, 512, base=1000, way=20, sessions=5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", action="store_true", help="10 million rows, 10 GB of disk")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    size = LARGE if args.scale else SMALL
    if args.inside:
        print(json.dumps(measure(args.inside, size, args.methods[0])))
        return
    needed = 2 * size.dim * (size.train + size.test)
    place = args.folder or Path(tempfile.gettempdir())
    if shutil.disk_usage(place).free < 1.2 * needed:
        sys.exit(f"{place} has less than {1.2 * needed / GB:.1f} GB free: give another --folder")
    print(
        f"{machine()}; one thread is used\n{size.train:,} training and {size.test:,} test rows × "
        f"{size.dim}, float16, {size.base:,} base classes, {size.sessions} sessions of {size.way}",
        flush=True,
    )
    found = {}
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        shards = Path(folder) / "generated.shards"
        started = time.perf_counter()
        generate(shards, size)
        total = sum(file.stat().st_size for file in shards.iterdir())
        seconds = time.perf_counter() - started
        print(f"generated {total / GB:.2f} GB in {seconds:.0f} s", flush=True)
        for method in args.methods:
            found[method] = in_a_process(shards, method, args.scale)
            show(method, found[method])
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1))
    sys.exit(any(numbers["peak"] > LIMIT for numbers in found.values()))


def generate(folder: Path, size: Size) -> None:
    """Classes of one centre each, every row its centre plus noise; classes come in any order."""
    from cala.data.shard_writer import ShardWriter

    draw = np.random.default_rng(0)
    centres = draw.standard_normal((size.classes, size.dim), dtype=np.float32)
    noise = 3.5 * draw.standard_normal((SHARD, size.dim), dtype=np.float32)
    names = tuple(f"class {label:05d}" for label in range(size.classes))
    show_done = bar("generating", size.train + size.test)
    done = 0
    with ShardWriter(folder, dim=size.dim, classes=names) as writer:
        for split, rows in (("train", size.train), ("test", size.test)):
            for start in range(0, rows, SHARD):
                count = min(SHARD, rows - start)
                labels = draw.integers(size.classes, size=count)
                x = noise[draw.permutation(SHARD)[:count]]
                x += centres[labels]
                writer.write(f"{split} {start}", x, labels, split)
                done += count
                show_done(done)
        writer.finish()


def in_a_process(shards: Path, method: str, large: bool) -> dict[str, float]:
    command = [sys.executable, __file__, "--inside", str(shards), "--methods", method]
    command += ["--scale"] if large else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1])


def measure(shards: Path, size: Size, method: str) -> dict[str, float]:
    """Seconds and bytes of one method, inside the limit."""
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    import warnings

    from cala.benchmark.runner import fit_method
    from cala.benchmark.scoring import run_draw
    from cala.benchmark.task import make_draw
    from cala.data.embeddings import load_embeddings
    from cala.data.progress import progress_to
    from cala.data.protocol import make_protocol
    from cala.errors import BaseQueryWarning

    warnings.simplefilter("ignore", BaseQueryWarning)
    found = {"baseline": peak()}
    protocol = make_protocol(
        size.classes, base=size.base, way=size.way, shot=5, sessions=size.sessions, name="generated"
    )
    clock = Clock()
    data = load_embeddings(shards).relabelled(protocol)
    draw = make_draw("random:0", protocol, data)
    found["open"], _ = clock.lap()
    with progress_to(passes(f"{method}: fit")):
        head = fit_method(method, data, protocol)
    found["fit"], found["fit processor"] = clock.lap()
    found["fit peak"] = peak()
    added: list[float] = []
    with progress_to(passes(f"{method}: scoring")):
        sessions = run_draw(head, data, protocol, draw, seconds=added)
    found["add"] = sum(added) / len(added)
    found["score"], found["score processor"] = clock.lap()
    last = sessions[-1]
    rates = {name: getattr(last, name) for name in ("accuracy", "base", "novel", "hm", "ausuc")}
    return {**found, **rates, "peak": peak()}


class Clock:
    """Seconds on the wall, and of the processor: other work on the machine counts in the first."""

    def __init__(self) -> None:
        self._last = self._now()

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), time.process_time()

    def lap(self) -> tuple[float, float]:
        """Since the last call."""
        before, self._last = self._last, self._now()
        return self._last[0] - before[0], self._last[1] - before[1]


def passes(what: str) -> Callable[[str, int, int], None]:
    """A bar for each pass over the rows."""
    bars: dict[int, Callable[[int], None]] = {}

    def watch(_: str, done: int, total: int) -> None:
        bars.setdefault(total, bar(f"{what}, a pass", total))(done)

    return watch


def bar(what: str, total: int) -> Callable[[int], None]:
    """A line on the error stream: rewritten on a terminal, one for every tenth in a log."""
    live, said = sys.stderr.isatty(), [-1]

    def show_done(done: int) -> None:
        percent = 100 * done // total
        if percent < said[0]:
            said[0] = -1  # the next pass
        if percent // (1 if live else 10) == said[0] // (1 if live else 10) and said[0] >= 0:
            return
        said[0] = percent
        filled = "#" * (percent // 5)
        line = f"{what:<24} [{filled:<20}] {done:>12,} of {total:,} rows"
        print(f"\r{line}" if live else line, end="" if live and done < total else "\n",
              file=sys.stderr, flush=True)  # fmt: skip

    return show_done


def show(method: str, found: dict[str, float]) -> None:
    print(f"\n{method}")
    print(
        f"  open {found['open']:.1f} s, fit {found['fit']:.1f} s ({found['fit processor']:.1f} s "
        f"of processor time), a session added in {1000 * found['add']:.0f} ms,"
    )
    print(
        f"  sessions added and scored in {found['score']:.1f} s ({found['score processor']:.1f} s)"
    )
    print(
        f"  peak {found['peak'] / GB:.2f} GB resident ({found['baseline'] / GB:.2f} GB before "
        f"anything is read), limit {LIMIT / GB:.0f} GB"
    )
    rates = ", ".join(f"{k} {100 * found[k]:.1f}" for k in ("accuracy", "base", "novel", "hm"))
    print(f"  after the last session: {rates} %", flush=True)


if __name__ == "__main__":
    main()
