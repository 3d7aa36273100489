"""Growing classifiers side by side: fit, add a session, predict 10,000, what is kept, accuracy.

    python benchmarks/growing.py [--cap 300] [--cases NAME …] [--draws 5] [--json FILE]

Speed: generated embeddings of many classes; a session brings 5 classes of 5 rows. Every contestant
runs in a process of its own, one after the other; a step that takes longer than the cap is
shown so, and ends it. Steps are repeated until 10 seconds are spent, 5 sessions and 3 predictions
at most. Memory: `kept` to go on learning, and what `fit` took at its most on top of its input.
Accuracy: the shipped CIFAR-100 embeddings, 60 base classes and 8 sessions of 5, on test images, the
same draws for all. What is not installed (faiss-cpu, avalanche-lib) is left out by name.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from arguments import target_file, whole_number
from contestants import CONTESTANTS, OURS, kept_bytes
from machine import machine

WAY, SHOT, SESSIONS, QUERIES, ENOUGH = 5, 5, 5, 10_000, 10.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # scikit-learn's too
STEPS = ("fit", "add", "predict")
REFITTED_ROWS, REFITTED_CLASSES, NEIGHBOUR_ROWS = 60_000, 1_000, 100_000


@dataclass(frozen=True)
class Case:
    classes: int
    rows: int  # of each class
    dim: int

    def __str__(self) -> str:
        return f"{self.classes:,} classes × {self.rows:,} rows, {self.dim:,} dimensions"


CASES = {
    "small": Case(60, 500, 64),
    "medium": Case(1_000, 60, 512),
    "wide": Case(1_000, 60, 1_280),
    "classes": Case(10_000, 10, 512),
    "rows": Case(1_000, 1_000, 512),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cap", type=float, default=300, help="seconds for a step of a contestant")
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--only", nargs="*", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--draws", type=whole_number(0), default=5, help="for the accuracy")
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.one:
        name, case, out = args.one
        return one(name, case, Path(out))
    found: dict[str, object] = {"machine": machine(), "cap": args.cap}
    print(f"{machine()}\none process at a time, one thread each\n")
    found["speed"] = {name: race(name, args.only, args.cap) for name in args.cases}
    if args.draws:
        found["accuracy"] = accuracies(args.only, args.draws, args.cap)
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1))
    return None


def entered(name: str, case: Case) -> bool:
    """Whether a contestant is tried on a case: refitting grows beyond all caps."""
    rows = case.classes * case.rows
    if name in OURS:
        return name != "cala" or case.classes <= REFITTED_CLASSES  # its fit grows with classes²
    if "kNN" in name:
        return rows <= NEIGHBOUR_ROWS and name.endswith("5")
    if "LDA" in name:
        return rows <= REFITTED_ROWS
    plain = "balanced" not in name  # weights change the answers, not the time
    if name != "NearestCentroid" and case.dim > 512:
        return False  # slower than at 512, where they are beyond the cap already
    return plain and rows <= REFITTED_ROWS and case.classes <= REFITTED_CLASSES


def race(case_name: str, names: list[str], cap: float) -> dict[str, dict[str, float]]:
    case = CASES[case_name]
    found: dict[str, dict[str, float]] = {}
    print(f"{case}: seconds")
    print(
        f"  {'':<24}{'fit':>8}{'a session':>11}{'10,000':>9}{'kept, MB':>10}"
        f"{'fit, MB':>9}{'× slower to add':>17}"
    )
    for name in names:
        if not entered(name, case):
            continue
        found[name] = run_one(name, case_name, cap)
        cells = line(name, found[name], found.get("cala-plus", {}), cap)
        print(f"  {name:<24}{cells}", flush=True)
    print()
    return found


def line(name: str, now: dict[str, float], ours: dict[str, float], cap: float) -> str:
    if "missing" in now:
        return "  not installed"
    late = f"> {cap:.0f}"
    refits = name not in OURS and "kNN" not in name  # so a fit that is late makes adding late
    cells = [f"{now[k]:.3g}" if k in now else late if k == "fit" else "–" for k in STEPS]
    if refits and "add" not in now:
        cells[1] = late
    kept = f"{now['kept'] / 1e6:.1f}" if "kept" in now else "–"
    most = f"{now['most'] / 1e6:.0f}" if "most" in now else "–"
    slower = ""
    if "add" in ours and "add" in now:
        slower = f"{now['add'] / ours['add']:,.1f}"
    elif "add" in ours and refits:
        slower = f"> {cap / ours['add']:,.0f}"
    return f"{cells[0]:>8}{cells[1]:>11}{cells[2]:>9}{kept:>10}{most:>9}{slower:>17}"


def run_one(name: str, case: str, cap: float) -> dict[str, float]:
    """In a process of its own; each step has the cap, making the data is none."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = [sys.executable, __file__, "--one", name, case, str(out)]
        process = subprocess.Popen(command, env={**os.environ, **ONE_THREAD})
        told, since, late = 0.0, None, False
        while process.poll() is None:
            if out.exists() and out.stat().st_mtime != told:
                told, since = out.stat().st_mtime, time.monotonic()
            if since is not None and time.monotonic() - since > cap:
                late = True
                process.kill()
            time.sleep(0.05)
        if process.returncode and not late:
            raise SystemExit(f"{name} failed on {case} (exit code {process.returncode})")
        return json.loads(out.read_text())


def one(name: str, case_name: str, out: Path) -> None:
    """Writes what is known after every step, since it may be stopped."""
    case, found = CASES[case_name], {}

    def tell() -> None:
        new = out.with_suffix(".new")
        new.write_text(json.dumps(found))
        new.replace(out)

    try:
        contestant = CONTESTANTS[name]()
        if "faiss" in name:
            import faiss

            faiss.omp_set_num_threads(1)
    except Exception as error:
        found["missing"] = repr(error)[:200]
        return tell()
    draw = np.random.default_rng(0)
    news = WAY * SESSIONS
    centres = draw.standard_normal((case.classes + news, case.dim), dtype=np.float32)

    def rows(labels: np.ndarray) -> np.ndarray:
        x = draw.standard_normal((len(labels), case.dim), dtype=np.float32)
        x += centres[labels]
        return x

    data = rows(y := np.repeat(np.arange(case.classes), case.rows)), y
    tell()
    before = memory_from_now()
    found["fit"] = seconds(partial(contestant.fit, *data))
    if before is not None:
        found["most"] = most_memory() - before
    tell()
    del data, y  # what it needs later it has kept
    times = []
    for session in range(SESSIONS):
        first = case.classes + WAY * session
        labels = np.repeat(np.arange(first, first + WAY), SHOT)
        shots = rows(labels)
        times.append(seconds(lambda s=shots, t=labels: contestant.add(s, t)))
        found["add"] = statistics.median(times)
        tell()
        if sum(times) > ENOUGH:
            break
    queries = rows(np.arange(QUERIES) % (case.classes + news))
    contestant.predict(queries[:100])  # warm
    times = []
    while len(times) < 3 and sum(times) < ENOUGH:
        times.append(seconds(lambda: contestant.predict(queries)))
    found["predict"] = statistics.median(times)
    tell()
    found["kept"] = kept_bytes(contestant)
    tell()
    return None


def memory_from_now() -> int | None:
    """Bytes of this process, and the high-water mark begins anew; None where no such thing is."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return most_memory()


def most_memory() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])


def seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def accuracies(names: list[str], draws: int, cap: float) -> dict[str, dict[str, float]]:
    """After the last session; percent, mean over the draws."""
    from cala.benchmark.draws import make_draw
    from cala.benchmark.problem import load_problem

    problem = load_problem("cifar100", draws=f"random:{draws}")
    data, protocol = problem.data, problem.protocol
    keep = data.learnable()
    base = (data.y_train < protocol.base) & keep
    x, y = data.x_train[base].numpy(), data.y_train[base].numpy()
    test, truth = data.x_test.numpy(), data.y_test.numpy()
    held = data.holdout[base].numpy()
    print(
        f"Accuracy after the last session, CIFAR-100: {protocol.base} base and "
        f"{protocol.n_classes - protocol.base} novel classes, {len(test):,} test images, mean of "
        f"{draws} draws"
    )
    print(f"  {'':<30}{'all':>8}{'base':>8}{'novel':>8}{'HM':>8}")
    found: dict[str, dict[str, float]] = {}
    for name in names:
        began, scores = time.monotonic(), []
        for draw in problem.draws:
            shots = make_draw(draw, protocol, data.y_train, keep)
            try:
                scores.append(score(name, x, y, held, data, shots, test, truth, protocol.base))
            except (ImportError, RuntimeError) as error:
                print(f"  {name:<30}  not installed ({repr(error)[:60]})")
                break
            if time.monotonic() - began > cap:
                break
        if scores:
            found[name] = {k: 100 * float(np.mean([s[k] for s in scores])) for k in scores[0]}
            found[name]["draws"] = len(scores)
            cells = "".join(f"{found[name][k]:8.1f}" for k in ("all", "base", "novel", "hm"))
            few = "" if len(scores) == draws else f"   ({len(scores)} draws, then the cap)"
            print(f"  {name:<30}{cells}{few}", flush=True)
    return found


def score(name, x, y, held, data, shots, test, truth, n_base) -> dict[str, float]:
    contestant = CONTESTANTS[name]()
    rows = np.concatenate([np.asarray(session) for session in shots.rows])
    new_x, new_y = data.x_train[rows].numpy(), data.y_train[rows].numpy()
    if hasattr(contestant, "make"):  # refitted: only the last fit is asked about
        contestant.fit(np.concatenate([x, new_x]), np.concatenate([y, new_y]))
    else:
        if name in OURS:
            contestant.holdout = held
        contestant.fit(x, y)
        for session in shots.rows:
            contestant.add(data.x_train[session].numpy(), data.y_train[session].numpy())
    right = contestant.predict(test) == truth
    base, novel = right[truth < n_base].mean(), right[truth >= n_base].mean()
    hm = 2 * base * novel / (base + novel) if base + novel else 0.0
    return {"all": right.mean(), "base": base, "novel": novel, "hm": hm}


if __name__ == "__main__":
    main()
