"""How well images of classes never learned are told from known ones, over random re-splits.

    python benchmarks/unknowns.py cub200 [--data FOLDER] [--part dev|all] [--splits 20]

Half of the classes are base, a quarter is learned from 5 shots, a quarter stays unknown. `dev`
takes the first half of the classes only: everything was decided there. CIFAR-100 (shipped
embeddings, 60 base classes, 20 of the other 40 novel, training rows only) has no part but dev.
The method is the host of `cala-plus`: p-values do not depend on the adapter, so it is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from arguments import target_file, whole_number
from cala.cli.terminal import console
from cala.core.fakes import FakePool, pool_shape
from cala.data.embeddings import load_embeddings
from cala.data.sets import open_images
from cala.encoders import load_encoder
from cala.encoders.embed import embed
from cala.encoders.fakes import encode_fakes
from cala.errors import CalaError
from cala.heads import BaseData, make_head
from cala.heads.rejection import familiarity, fit_rejection
from cala.metrics import auroc, fpr_at_tpr
from cala.model.photos import gather
from cala.shipped import shipped
from cala.statistics import estimate

FOLDERS = {"cub200": "cub200_sample", "mini_imagenet": "miniimagenet_sample"}
SETS = (*FOLDERS, "cifar100")
BASE_ROWS = {"cub200": 5, "mini_imagenet": 12}
MIXED_PAIRS, MIXED_EACH = 80, 25
ENCODER, SHOTS, RATE, DEV_QUERIES = "efficientnet-lite0", 5, 0.05, 15


@dataclass(frozen=True)
class Split:
    """Rows to learn base classes and shots from, and queries of each kind."""

    x: np.ndarray
    y: np.ndarray
    holdout: np.ndarray
    x_shots: np.ndarray
    y_shots: np.ndarray
    base: np.ndarray
    novel: np.ndarray
    unknown: np.ndarray
    fakes: FakePool | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--data", type=Path, help="folder of the samples (default: $CALA_DATA)")
    parser.add_argument("--part", choices=("dev", "all"), default="dev")
    parser.add_argument(
        "--fakes", choices=("image", "feature"), default="image", help="of photos (default: image)"
    )
    parser.add_argument("--splits", type=whole_number(2), default=20)
    parser.add_argument("--method", default="calibrated-mean", help="(default: calibrated-mean)")
    parser.add_argument("--metric", default="whitened", help="(default: whitened)")
    parser.add_argument("--json", type=target_file, help="also write the numbers here")
    args = parser.parse_args()
    folder = args.data or os.environ.get("CALA_DATA")
    if args.set != "cifar100" and folder is None:
        sys.exit(f"give --data FOLDER, or set CALA_DATA to the one that holds {FOLDERS[args.set]}")
    if args.set == "cifar100" and args.part != "dev":
        sys.exit("cifar100 has dev rows only here: leave --part out")
    warnings.simplefilter("ignore")
    try:
        make = cifar_splits() if args.set == "cifar100" else photo_splits(args, Path(folder))
        found: dict[str, list[float]] = {}
        with console().status("splits"):
            for seed in range(args.splits):
                for name, value in measure(make(seed), args.method, args.metric).items():
                    found.setdefault(name, []).append(100 * value)
    except CalaError as error:
        sys.exit(f"error: {error}")
    table = Table(title=f"{args.set}, {args.part}, {args.splits} re-splits, percent", box=None)
    for heading in ("", "mean", "± 95 %", "SD"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, values in found.items():
        mean = estimate(values)
        table.add_row(name, f"{mean.mean:.1f}", f"{mean.half:.1f}", f"{np.std(values, ddof=1):.1f}")
    console().print(table)
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1))


def measure(split: Split, method: str, metric: str) -> dict[str, float]:
    """Rates of one split, in fractions."""
    data = BaseData(split.x, split.y, fakes=split.fakes, holdout=split.holdout)
    head = make_head(method, metric=metric).fit_base(data)
    rejection = fit_rejection(head, data)
    head.add(split.x_shots, split.y_shots)
    base, novel, unknown = (
        familiarity(head, rejection, rows) for rows in (split.base, split.novel, split.unknown)
    )
    return {
        "AUROC base": auroc(base, unknown),
        "AUROC novel": auroc(novel, unknown),
        "FPR@95TPR base": fpr_at_tpr(base, unknown),
        "FPR@95TPR novel": fpr_at_tpr(novel, unknown),
        f"false rejections base at {RATE}": float((base < RATE).mean()),
        f"false rejections novel at {RATE}": float((novel < RATE).mean()),
        f"unknown found at {RATE}": float((unknown < RATE).mean()),
    }


def photo_splits(args: argparse.Namespace, folder: Path):
    images = open_images(folder / FOLDERS[args.set], args.set)
    encoder = load_encoder(ENCODER)
    x = np.concatenate([embed(p, encoder) for p in (images.train, images.test)])
    y = np.concatenate([images.train.labels, images.test.labels])
    classes = len(images.classes) if args.part == "all" else len(images.classes) // 2
    base, novel, rows = classes // 2, classes // 4, BASE_ROWS[args.set]

    def mixed(learn: np.ndarray, labels: np.ndarray, seed: int) -> FakePool:
        """What `cala fit` mixes: 2,000 images at the most."""
        parts = (images.train, images.test)
        photos = [part.image(row) for row, part in (_place(row, parts) for row in learn.tolist())]
        split = gather(photos, labels.tolist())
        pairs, each = pool_shape(np.bincount(labels), MIXED_PAIRS, MIXED_EACH)
        places = np.arange(len(learn))
        return encode_fakes(split, places, encoder, pairs=pairs, images=each, seed=seed)

    def make(seed: int) -> Split:
        rng = np.random.default_rng(seed)
        own = [rng.permutation(np.flatnonzero(y == c)) for c in rng.permutation(classes)]
        known, new, rest = own[:base], own[base : base + novel], own[base + novel :]
        learn = np.concatenate([r[:rows] for r in known])
        shots = np.concatenate([r[:SHOTS] for r in new])
        labels = np.arange(base).repeat(rows)
        return Split(
            x[learn],
            labels,
            np.ones(len(learn), dtype=bool),
            x[shots],
            base + np.arange(novel).repeat(SHOTS),
            x[np.concatenate([r[rows:] for r in known])],
            x[np.concatenate([r[SHOTS:] for r in new])],
            x[np.concatenate(rest)],
            mixed(learn, labels, seed) if args.fakes == "image" else None,
        )

    return make


def _place(row: int, parts) -> tuple[int, object]:
    """Where a row of both parts together lies."""
    first = len(parts[0])
    return (row, parts[0]) if row < first else (row - first, parts[1])


def cifar_splits():
    data = load_embeddings(shipped("cifar100/embeddings.npz")).dev(DEV_QUERIES, seed=0, keep=[])
    x_train, x_test = data.x_train, data.x_test
    usable = data.learnable()
    base = (data.y_train < 60) & usable
    assert data.fakes is not None
    assert data.holdout is not None

    def make(seed: int) -> Split:
        rng = np.random.default_rng(seed)
        order = 60 + rng.permutation(40)
        free = [np.flatnonzero((data.y_train == c) & usable) for c in order[:20]]
        shots = np.concatenate([rng.permutation(rows)[:SHOTS] for rows in free])
        queries = [np.isin(data.y_test, c) for c in (np.arange(60), order[:20], order[20:])]
        return Split(
            x_train[base],
            data.y_train[base],
            data.holdout[base],
            x_train[shots],
            data.y_train[shots],
            *(x_test[q] for q in queries),
            data.fakes,
        )

    return make


if __name__ == "__main__":
    main()
