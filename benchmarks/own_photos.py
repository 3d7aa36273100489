"""Known and new classes on photos, over random re-splits into shots and test photos.

    python benchmarks/own_photos.py cub200 [--data FOLDER] [--splits 20] [--fakes image|feature]

What `cala fit`, `cala add` and `cala eval` do with the bundled encoder, for every method in both
metrics on the same re-splits: the first classes are known, the others are added one by one from
five photos each, and the photos that are left test. CUB-200 sample: 100 + 100 classes, of 7 photos
5 teach and 2 test. mini-ImageNet sample: 60 + 40 classes, of 20 photos 12 teach a known class.
Test photos choose nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from arguments import whole_number
from cala import CalaClassifier
from cala.cli.terminal import console
from cala.core.fakes import FakePool, pool_shape
from cala.encoders import load_encoder
from cala.encoders.base import Encoder
from cala.encoders.embed import embed
from cala.encoders.fakes import encode_fakes
from cala.errors import CalaError
from cala.metrics import harmonic
from cala.model.photos import gather
from cala.statistics import mean_interval, paired

METHODS = ("nearest-mean", "la", "cala", "cala-plus")
METRICS = ("cosine", "whitened")
PAIRS, MIXED = 80, 25  # what `cala fit` mixes by default
SHOTS = 5
COLUMNS = ("known", "new", "hm", "all")


@dataclass(frozen=True)
class Photos:
    """paths and labels (n,) of a sample; the first `known` classes are known.

    teach : photos of a known class that teach
    """

    paths: list[Path]
    labels: NDArray[np.int64]
    known: int
    teach: int


def cub200(folder: Path) -> Photos:
    root = folder / "cub200_sample" / "CUB_200_2011" / "images"
    classes = sorted(path for path in root.iterdir() if path.is_dir())
    paths = [path for one in classes for path in sorted(one.glob("*.jpg"))]
    places = {one: place for place, one in enumerate(classes)}
    return Photos(paths, np.array([places[path.parent] for path in paths]), 100, SHOTS)


def mini_imagenet(folder: Path) -> Photos:
    paths = sorted((folder / "miniimagenet_sample" / "images").glob("*.jpg"))
    names = [path.name[:9] for path in paths]
    return Photos(paths, np.unique(names, return_inverse=True)[1], 60, 12)


SETS = {"cub200": cub200, "mini_imagenet": mini_imagenet}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--data", type=Path, help="folder of the samples (default: $CALA_DATA)")
    parser.add_argument("--splits", type=whole_number(2), default=20)
    parser.add_argument("--fakes", choices=("image", "feature"), default="image")
    args = parser.parse_args()
    folder = args.data or os.environ.get("CALA_DATA")
    if folder is None:
        sys.exit("give --data FOLDER, or set CALA_DATA to the one that holds the samples")
    warnings.simplefilter("ignore")
    try:
        found = measure(SETS[args.set](Path(folder)), args.splits, args.fakes)
    except (CalaError, OSError) as error:
        sys.exit(f"error: {error}")
    show(args, found)


def measure(photos: Photos, splits: int, fakes: str) -> dict[tuple[str, str], NDArray[np.float64]]:
    """Percentages (splits, 4) per method and metric."""
    encoder = load_encoder("efficientnet-lite0")
    x = embed(gather(photos.paths), encoder)
    rows: dict[tuple[str, str], list[list[float]]] = {}
    for seed in range(splits):
        print(f"re-split {seed + 1} of {splits}", file=sys.stderr)
        teaches = draw(photos, seed)
        known = photos.labels < photos.known
        pool = mixed(photos, known & teaches, encoder, seed) if fakes == "image" else None
        for method in METHODS:
            for metric in METRICS:
                right = answers(x, photos, teaches, pool, method, metric)
                test_known, test_new = known[~teaches], ~known[~teaches]
                a, b = float(right[test_known].mean()), float(right[test_new].mean())
                numbers = [a, b, harmonic(a, b), float(right.mean())]
                rows.setdefault((method, metric), []).append([100 * n for n in numbers])
    return {key: np.array(values) for key, values in rows.items()}


def draw(photos: Photos, seed: int) -> NDArray[np.bool_]:
    """(n,) photos that teach; the others test."""
    order = np.random.default_rng(seed).random(len(photos.labels))
    teaches = np.zeros(len(order), dtype=bool)
    for label in np.unique(photos.labels):
        rows = np.flatnonzero(photos.labels == label)
        count = photos.teach if label < photos.known else SHOTS
        teaches[rows[np.argsort(order[rows])[:count]]] = True
    return teaches


def mixed(photos: Photos, rows: NDArray[np.bool_], encoder: Encoder, seed: int) -> FakePool:
    split = gather(photos.paths, photos.labels)
    pairs, images = pool_shape(np.bincount(photos.labels[rows]), PAIRS, MIXED)
    places = np.flatnonzero(rows)
    return encode_fakes(split, places, encoder, pairs=pairs, images=images, seed=seed)


def answers(
    x: NDArray[np.float32],
    photos: Photos,
    teaches: NDArray[np.bool_],
    pool: FakePool | None,
    method: str,
    metric: str,
) -> NDArray[np.bool_]:
    """Which test photos are recognised: (m,)."""
    y, known = photos.labels, photos.labels < photos.known
    fake = {} if pool is None else {"fake": pool.features, "pairs": pool.pairs}
    model = CalaClassifier(method, metric=metric)
    model.fit(x[known & teaches], y[known & teaches], holdout="all", **fake)
    for label in np.unique(y[~known]):
        shots = (y == label) & teaches
        model.partial_fit(x[shots], y[shots])
    return model.predict(x[~teaches]) == y[~teaches]


def show(args: argparse.Namespace, found: dict[tuple[str, str], NDArray[np.float64]]) -> None:
    title = f"{args.set}, {args.splits} re-splits, {args.fakes}-level fakes, percent"
    table = Table(title=title, box=None)
    for heading in ("metric", "method", *COLUMNS, "hm - nearest mean", "all - nearest mean"):
        table.add_column(heading, justify="right" if heading in COLUMNS else "left")
    for metric in METRICS:
        for method in METHODS:
            values = found[method, metric]
            cells = [f"{mean:.1f}" for mean in values.mean(0)]
            gains = []
            for column in (2, 3):
                plain = found["nearest-mean", metric][:, column]
                gain = paired(values[:, column].tolist(), plain.tolist())
                gains.append("" if method == METHODS[0] else f"{gain.mean:+.2f} ± {gain.half:.2f}")
            table.add_row(metric, method, *cells, *gains)
    console().print(table)
    best, plain = found["cala-plus", "whitened"], found["nearest-mean", "cosine"]
    for place, name in enumerate(COLUMNS):
        gain = paired(best[:, place].tolist(), plain[:, place].tolist())
        spread = mean_interval(best[:, place].tolist())
        print(
            f"cala-plus, whitened, {name}: {spread.mean:.1f} ± {spread.half:.1f}; against nearest "
            f"mean, cosine: {gain.mean:+.2f} ± {gain.half:.2f}"
        )


if __name__ == "__main__":
    main()
