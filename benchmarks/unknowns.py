"""How well images of classes never learned are told from known ones, over random draws of classes.

    python benchmarks/unknowns.py [--data FOLDER] [--draws 20] [--json FILE]
    python benchmarks/unknowns.py --spread [--data FOLDER] [--draws 20]

Small problems: 2 to 30 kinds of birds from 5 photos each; strangers are photos of other birds
(near) and of mini-ImageNet (far), with 0, 10 or 50 photos of other birds rejected before; and 2 or
10 classes of mini-ImageNet, where birds are far. Large ones: 100 + 50 kinds of birds, and 60 + 20
classes of CIFAR-100 (shipped embeddings, training rows alone), where the rest is strange. FOLDER
holds cub200_sample and miniimagenet_sample; without it only CIFAR-100 is measured.

`--spread` measures instead how far genuine images scatter with this encoder: one number, which
`cala fit` takes for granted as long as there are few photos (`cala.model.fitting.SPREADS`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from arguments import target_file, whole_number
from cala import CalaClassifier
from cala.cli.terminal import console
from cala.data.embeddings import load_embeddings
from cala.data.sets import open_images
from cala.encoders import load_encoder
from cala.encoders.embed import embed
from cala.errors import CalaError
from cala.metrics import auroc
from cala.model.fitting import SPREADS
from cala.shipped import shipped
from cala.statistics import mean_interval

ENCODER, SHOTS, RATE, DEV_QUERIES = "efficientnet-lite0", 5, 0.05, 15
COLUMNS = ("known", "new", "near", "far", "AUROC known", "AUROC new")
SIZES, REJECTED, QUERIES = (2, 5, 10, 30), (0, 10, 50), 300


@dataclass(frozen=True)
class Problem:
    """Rows to learn base classes and shots from, rows to reject, and queries by kind."""

    x: np.ndarray
    y: np.ndarray
    queries: dict[str, np.ndarray]
    holdout: np.ndarray | str = "all"
    spread: float = 0.0
    x_shots: np.ndarray | None = None
    y_shots: np.ndarray | None = None
    rejected: np.ndarray | None = None


Make = Callable[[int], Problem]
Rows = tuple[np.ndarray, np.ndarray]  # embeddings and labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the samples (default: $CALA_DATA)")
    parser.add_argument("--draws", type=whole_number(2), default=20)
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    parser.add_argument("--spread", action="store_true", help="measure the encoder's spread")
    args = parser.parse_args()
    folder = args.data or os.environ.get("CALA_DATA")
    warnings.simplefilter("ignore")
    try:
        if args.spread:
            measure_spread(Path(folder), args.draws)
            return
        cases = cifar_case() if folder is None else {**bird_cases(Path(folder)), **cifar_case()}
        found = {}
        with console().status("draws"):
            for name, make in cases.items():
                found[name] = [measure(make(seed)) for seed in range(args.draws)]
    except CalaError as error:
        sys.exit(f"error: {error}")
    print(f"Called unknown at {RATE}, {args.draws} draws, percent:\n")
    print("| | " + " | ".join(COLUMNS) + " |\n" + "|---" * (1 + len(COLUMNS)) + "|")
    for name, rows in found.items():
        cells = [_shown([row.get(key) for row in rows]) for key in COLUMNS]
        print(f"| {' | '.join([name, *cells])} |")
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1))


def _shown(values: list[float | None]) -> str:
    if None in values:
        return "–"
    mean = mean_interval([100 * value for value in values])
    return f"{mean.mean:.1f} ± {mean.half:.1f}"


def measure(problem: Problem) -> dict[str, float]:
    """Shares of each kind of query that are called unknown, and how well kinds are ranked."""
    model = CalaClassifier("nearest-mean").fit(problem.x, problem.y, holdout=problem.holdout)
    model.expect_spread(problem.spread)
    if problem.x_shots is not None:
        model.partial_fit(problem.x_shots, problem.y_shots)
    if problem.rejected is not None:
        model.reject(problem.rejected)
    p = {kind: model.familiarity(rows) for kind, rows in problem.queries.items()}
    shares = {kind: float((values < RATE).mean()) for kind, values in p.items()}
    strange = p["near"]
    own = {kind: values for kind, values in p.items() if kind in ("known", "new")}
    return {**shares, **{f"AUROC {kind}": auroc(v, strange) for kind, v in own.items()}}


def measure_spread(folder: Path, draws: int) -> None:
    """Standard deviation of genuine scores, by √(1 - t), over draws of ten classes."""
    for name, (x, y) in zip(("birds", "mini-ImageNet"), embedded(folder), strict=True):
        found = []
        for seed in range(draws):
            rng = np.random.default_rng(seed)
            own = [np.flatnonzero(y == c)[:SHOTS] for c in rng.permutation(int(y.max()) + 1)[:10]]
            labels = np.arange(10).repeat(SHOTS)
            model = CalaClassifier("nearest-mean")
            rejection = model.fit(x[np.concatenate(own)], labels, holdout="all").rejection_
            scores = rejection._genuine[0]
            found.append(float(scores.std(ddof=1) / np.sqrt(1 - rejection._pooled)))
        mean = mean_interval(found)
        print(f"{name}: {mean.mean:.4f} ± {mean.half:.4f} ({draws} draws, {ENCODER})")


def embedded(folder: Path) -> list[Rows]:
    """Embeddings and labels of birds, and of things that are mostly no birds."""
    encoder = load_encoder(ENCODER)
    sets = [open_images(folder / "cub200_sample", "cub200")]
    sets.append(open_images(folder / "miniimagenet_sample", "mini_imagenet"))
    return [
        (
            np.concatenate([embed(part, encoder) for part in (images.train, images.test)]),
            np.concatenate([images.train.labels, images.test.labels]),
        )
        for images in sets
    ]


def bird_cases(folder: Path) -> dict[str, Make]:
    birds, things = embedded(folder)
    (x, y), (far, _) = birds, things
    spread = SPREADS[ENCODER]
    classes = int(y.max()) + 1

    def drawn(seed: int, y: np.ndarray = y) -> tuple[np.random.Generator, list[np.ndarray]]:
        rng, count = np.random.default_rng(seed), int(y.max()) + 1
        return rng, [rng.permutation(np.flatnonzero(y == c)) for c in rng.permutation(count)]

    def small(count: int, rejected: int, own_set: Rows = birds, far_set: Rows = things) -> Make:
        (x, y), (far, _) = own_set, far_set

        def make(seed: int) -> Problem:
            rng, own = drawn(seed, y)
            known, others = own[:count], rng.permutation(np.concatenate(own[count:]))
            queries = {
                "known": x[np.concatenate([rows[SHOTS:] for rows in known])],
                "near": x[others[rejected:][:QUERIES]],
                "far": far[rng.permutation(len(far))[:QUERIES]],
            }
            learn = np.concatenate([rows[:SHOTS] for rows in known])
            labels = np.arange(count).repeat(SHOTS)
            rejects = x[others[:rejected]] if rejected else None
            return Problem(x[learn], labels, queries, rejected=rejects, spread=spread)

        return make

    def large(seed: int) -> Problem:
        _, own = drawn(seed)
        base, novel = classes // 2, classes // 4
        known, new, rest = own[:base], own[base : base + novel], own[base + novel :]
        return Problem(
            x[np.concatenate([rows[:SHOTS] for rows in known])],
            np.arange(base).repeat(SHOTS),
            {
                "known": x[np.concatenate([rows[SHOTS:] for rows in known])],
                "new": x[np.concatenate([rows[SHOTS:] for rows in new])],
                "near": x[np.concatenate(rest)],
                "far": far,
            },
            spread=spread,
            x_shots=x[np.concatenate([rows[:SHOTS] for rows in new])],
            y_shots=base + np.arange(novel).repeat(SHOTS),
        )

    cases = {
        f"{count} birds, {rejected} rejected": small(count, rejected)
        for count in SIZES
        for rejected in REJECTED
    }
    for count in (2, 10):
        for rejected in REJECTED:
            case = f"{count} of mini-ImageNet, {rejected} rejected"
            cases[case] = small(count, rejected, things, birds)
    return {**cases, "100 + 50 birds": large}


def cifar_case() -> dict[str, Make]:
    data = load_embeddings(shipped("cifar100/embeddings.npz")).dev(DEV_QUERIES, seed=0, keep=[])
    x_train, x_test = data.x_train, data.x_test
    usable = data.learnable()
    base = (data.y_train < 60) & usable
    assert data.holdout is not None

    def make(seed: int) -> Problem:
        rng = np.random.default_rng(seed)
        order = 60 + rng.permutation(40)
        free = [np.flatnonzero((data.y_train == c) & usable) for c in order[:20]]
        shots = np.concatenate([rng.permutation(rows)[:SHOTS] for rows in free])
        kinds = {"known": np.arange(60), "new": order[:20], "near": order[20:]}
        return Problem(
            x_train[base],
            data.y_train[base],
            {kind: x_test[np.isin(data.y_test, some)] for kind, some in kinds.items()},
            data.holdout[base],
            x_shots=x_train[shots],
            y_shots=data.y_train[shots],
        )

    return {"CIFAR-100, 60 + 20": make}


if __name__ == "__main__":
    main()
