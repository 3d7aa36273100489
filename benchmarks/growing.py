"""Growing classifiers side by side: fit, add a session, predict 10,000, what is kept, accuracy.

    python benchmarks/growing.py [--cap 300] [--minutes M] [--cases NAME …] [--json FILE]

Speed: generated embeddings of many classes; a session brings 5 classes of 5 rows. Every contestant
runs in a process of its own, one after the other, and fits something tiny first; a step that takes
longer than the cap, or than what is left of --minutes, is shown so, and ends it. One fit; sessions
and predictions until 10 seconds are spent, 5 and 3 at most, of which medians are taken. Memory:
`kept` to go on learning, and what `fit` took at its most on top of its input.
Accuracy: the shipped CIFAR-100 embeddings, 60 base classes and 8 sessions of 5, on test images, the
same draws for all. What is not installed (faiss-cpu, avalanche-lib) is left out by name.
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
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from arguments import target_file, whole_number
from cala.statistics import mean_interval
from contestants import CONTESTANTS, OURS, REFITTED, NotInstalled, kept_bytes
from goals import told
from machine import machine, use_threads
from memory import peak

WAY, SHOT, SESSIONS, QUERIES, ENOUGH = 5, 5, 5, 10_000, 10.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # scikit-learn's too
STEPS = ("fit", "add", "predict")
REFITTED_ROWS, REFITTED_CLASSES, NEIGHBOUR_ROWS = 60_000, 1_000, 100_000
PATIENCE = 40.0  # seconds after which a contestant begins no other draw
LEAST = 5.0  # seconds that are worth beginning for
ABSENT = (ImportError, NotInstalled)


@dataclass(frozen=True)
class Case:
    classes: int
    rows: int  # of each class
    dim: int

    def __str__(self) -> str:
        return f"{self.classes:,} classes × {self.rows:,} rows, {self.dim:,} dimensions"


CASES = {
    "small": Case(60, 500, 64),
    "wide": Case(1_000, 60, 1_280),
    "classes": Case(10_000, 10, 512),
    "rows": Case(1_000, 1_000, 512),
    "medium": Case(1_000, 60, 512),  # last: here a baseline may use its whole cap
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cap", type=float, default=300, help="seconds for a step of a contestant")
    parser.add_argument("--minutes", type=float, default=600, help="for everything")
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--only", nargs="*", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--draws", type=whole_number(0), default=5, help="for the accuracy")
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    use_threads(1)
    if args.one:
        name, case, out = args.one
        return one(name, case, Path(out))
    limits = Limits(args.cap, time.monotonic() + 60 * args.minutes)
    found: dict[str, Any] = {"machine": machine(), "cap": args.cap, "speed": {}, "accuracy": {}}
    print(f"{machine()}\none process at a time, one thread each\n")
    if args.cases:
        print(
            "Speed: seconds to fit, to add a session of 5 classes × 5 rows, and to predict 10,000 "
            "rows;\nMB kept to go on learning (embeddings included where they are needed), and "
            "taken by fit\nat its most; how many times slower than cala-plus a session is added\n"
        )

    def keep() -> None:
        if args.json is not None:
            args.json.write_text(json.dumps(found, indent=1))

    if args.draws:
        found["accuracy"] = accuracies(args.only, args.draws, limits)
        keep()
    for name in args.cases:
        found["speed"][name] = race(name, args.only, limits)
        keep()
    found["goals"] = told(goals(found))
    keep()
    failed = [
        name for races in found["speed"].values() for name in races if "failed" in races[name]
    ]
    sys.exit(bool(failed))


@dataclass(frozen=True)
class Limits:
    """Seconds for a step, and when all must be over."""

    cap: float
    end: float

    def now(self) -> float:
        return min(self.cap, self.end - time.monotonic())


def left_out(name: str, case: Case) -> str | None:
    """Why a contestant is not tried on a case; None where it is."""
    rows = case.classes * case.rows
    if name == "cala" and case.classes > REFITTED_CLASSES:
        return "its fit keeps fake classes × base classes similarities: gigabytes"
    if "kNN" in name and rows > NEIGHBOUR_ROWS:
        return "it keeps and compares every row"
    if name == "SGDClassifier" and case.dim > 512:
        return "slower than at 512 dimensions"
    if name in REFITTED and (rows > REFITTED_ROWS or case.classes > REFITTED_CLASSES):
        return "refitting is tried up to 60,000 rows and 1,000 classes"
    if "LDA" in name and rows > REFITTED_ROWS:
        return "it takes one row at a time"
    return None


def goals(found: dict[str, Any]) -> dict[str, bool]:
    """What the tables are to show, and whether they do."""
    met: dict[str, bool] = {}
    for case, races in found["speed"].items():
        ours = races.get("cala-plus", {}).get("add")
        refits = {n: races[n]["add"] for n in REFITTED if "add" in races.get(n, {})}
        if ours is not None and refits:
            least = min(refits, key=refits.__getitem__)
            ratio = refits[least] / ours
            goal = f"{CASES[case]}: adding is {ratio:,.0f} times faster than refitting {least}"
            met[f"{goal} (goal: 100)"] = ratio >= 100
    few, many = (
        found["speed"].get(c, {}).get("cala-plus", {}).get("kept") for c in ("medium", "rows")
    )
    if few and many:
        met["what is kept does not grow with the rows (60,000 and 1,000,000)"] = many <= 1.01 * few
    hm = {name: scores["hm"] for name, scores in found["accuracy"].items()}
    if len(hm) > 1 and "cala-plus" in hm:
        others = {name: value for name, value in hm.items() if name not in OURS}
        best = max(others, key=others.__getitem__)
        goal = (
            f"harmonic mean {hm['cala-plus']:.1f}, the best of the others ({best}) {hm[best]:.1f}"
        )
        met[goal] = hm["cala-plus"] > hm[best]
    return met


def race(case_name: str, names: list[str], limits: Limits) -> dict[str, dict[str, Any]]:
    case = CASES[case_name]
    found: dict[str, dict[str, Any]] = {}
    print(f"{case}")
    print(
        f"  {'':<24}{'fit':>8}{'a session':>11}{'10,000':>9}{'kept, MB':>10}"
        f"{'fit, MB':>9}{'× slower to add':>17}"
    )
    for name in names:
        if "balanced" in name or name.endswith("k=1"):
            continue  # other answers, the same time
        why = left_out(name, case)
        if why is None and limits.now() < LEAST:
            why = "no time is left of --minutes"
        if why is not None:
            print(f"  {name:<24}  left out: {why}", flush=True)
            continue
        found[name] = run_one(name, case_name, limits)
        cells = line(name, found[name], found.get("cala-plus", {}))
        print(f"  {name:<24}{cells}", flush=True)
    print()
    return found


def line(name: str, now: dict[str, Any], ours: dict[str, Any]) -> str:
    if "missing" in now:
        return "  not installed"
    if "failed" in now:
        return f"  failed (exit code {now['failed']})"
    cap = now.get("late", 0.0)
    late = f"> {cap:.0f}"
    refits = name in REFITTED  # so a fit that is late makes adding late
    cells = [f"{now[k]:.3g}" if k in now else late if k == "fit" else "–" for k in STEPS]
    if refits and "add" not in now:
        cells[1] = late
    kept = f"{now['kept'] / 1e6:.1f}" if "kept" in now else "–"
    most = f"{now['most'] / 1e6:.0f}" if "most" in now else "–"
    slower = ""
    if "add" in ours and "add" in now:
        ratio = now["add"] / ours["add"]
        slower = f"{ratio:,.1f}" if ratio >= 1 else f"{ratio:.2g}"
    elif "add" in ours and refits:
        slower = f"> {cap / ours['add']:,.0f}"
    return f"{cells[0]:>8}{cells[1]:>11}{cells[2]:>9}{kept:>10}{most:>9}{slower:>17}"


def run_one(name: str, case: str, limits: Limits) -> dict[str, Any]:
    """In a process of its own; each step has the cap, making the data is none."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = [sys.executable, __file__, "--one", name, case, str(out)]
        process = subprocess.Popen(command, env={**os.environ, **ONE_THREAD})
        seen, since, late = 0.0, None, None
        while process.poll() is None:
            if out.exists() and out.stat().st_mtime != seen:
                seen, since, allowed = out.stat().st_mtime, time.monotonic(), limits.now()
            if since is not None and time.monotonic() - since > max(allowed, LEAST):
                late = time.monotonic() - since
                process.kill()
            time.sleep(0.05)
        found = json.loads(out.read_text()) if out.exists() else {}
        if late is not None:
            found["late"] = late
        elif process.returncode:
            found["failed"] = process.returncode
        return found


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
    except ABSENT as error:
        found["missing"] = repr(error)[:200]
        return tell()
    warm_up(name, case.dim)
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
        found["most"] = peak() - before
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


def warm_up(name: str, dim: int) -> None:
    """One of its kind learns and answers something tiny: what is loaded once is not measured."""
    draw = np.random.default_rng(1)
    x, y = draw.standard_normal((80, dim), dtype=np.float32), np.arange(80) % 8
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = CONTESTANTS[name]()
        other.fit(x, y)
        other.add(x[:5], np.full(5, 8))
        other.predict(x)


def memory_from_now() -> int | None:
    """Bytes of this process, and the high-water mark begins anew; None where no such thing is."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return peak()


def seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def accuracies(names: list[str], draws: int, limits: Limits) -> dict[str, dict[str, float]]:
    """After the last session; percent, mean over the draws."""
    from cala.benchmark.task import load_task

    problem = load_task("cifar100", draws=f"random:{draws}")
    data, protocol = problem.data, problem.protocol
    keep = data.learnable()
    base = (data.y_train < protocol.base) & keep
    x, y = data.x_train[base], data.y_train[base]
    test, truth = data.x_test, data.y_test
    held = data.holdout[base]
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
            shots = problem.draw(draw)
            try:
                scores.append(score(name, x, y, held, data, shots, test, truth, protocol.base))
            except ABSENT as error:
                print(f"  {name:<30}  not installed ({repr(error)[:60]})")
                break
            if time.monotonic() - began > min(PATIENCE, limits.now()):
                break
        if scores:
            found[name] = {k: 100 * float(np.mean([s[k] for s in scores])) for k in scores[0]}
            found[name]["draws"] = len(scores)
            for kind, asked in (("base", truth < protocol.base), ("novel", truth >= protocol.base)):
                found[name][f"{kind}_half"] = half_width([s[kind] for s in scores], asked.sum())
            cells = "".join(f"{found[name][k]:8.1f}" for k in ("all", "base", "novel", "hm"))
            few = "" if len(scores) == draws else f"   ({len(scores)} of {draws} draws)"
            print(f"  {name:<30}{cells}{few}", flush=True)
    print()
    return found


def half_width(rates: list[float], images: int) -> float:
    """Half the 95 % interval of a mean rate, in percent, over draws and over test images."""
    drawn = mean_interval(rates).half if len(rates) > 1 else 0.0
    tested = 1.96 * float(np.sqrt(np.mean(rates) * (1 - np.mean(rates)) / images))
    return 100 * float(np.hypot(drawn, tested))


def score(name, x, y, held, data, shots, test, truth, n_base) -> dict[str, float]:
    contestant = CONTESTANTS[name]()
    rows = np.concatenate(shots.rows)
    new_x, new_y = data.x_train[rows], data.y_train[rows]
    if hasattr(contestant, "make"):  # refitted: only the last fit is asked about
        contestant.fit(np.concatenate([x, new_x]), np.concatenate([y, new_y]))
    else:
        if name in OURS:
            contestant.holdout = held
        contestant.fit(x, y)
        for session in shots.rows:
            contestant.add(data.x_train[session], data.y_train[session])
    right = contestant.predict(test) == truth
    base, novel = right[truth < n_base].mean(), right[truth >= n_base].mean()
    hm = 2 * base * novel / (base + novel) if base + novel else 0.0
    return {"all": right.mean(), "base": base, "novel": novel, "hm": hm}


if __name__ == "__main__":
    main()
