"""`headroom.json` of a run: what oracles could reach on nearest mean, in each of its metrics.

Schema 1:

    oracle    what a reader must know: it uses test labels
    headroom  metric -> draw, images (scored), rates: oracle -> rate -> fraction or null
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cala.benchmark.config import RunConfig
from cala.benchmark.draws import make_draw
from cala.benchmark.headroom import headroom
from cala.benchmark.runner import fit_method
from cala.benchmark.sources import Own, Source, source_of
from cala.benchmark.streaming import for_figures
from cala.benchmark.threads import one_thread
from cala.core.metric import METRICS
from cala.core.rows import loaded
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol, ShotDraw
from cala.files import write_text
from cala.heads import default_metric

SCHEMA = 1
HOST = "nearest-mean"
ORACLE = "uses test labels; cannot be selected"


def keep_headroom(
    out: Path,
    config: RunConfig,
    usual: Source,
    own: Own,
    protocol: Protocol,
    progress: Callable[[str], None] = lambda line: None,
) -> None:
    """Write what is missing of a run's `headroom.json`; its draw is the one that figures show."""
    if not protocol.sessions or config.gamma is not None:
        return  # no novel class to shift; or one run of many that differ in γ alone
    path, source = out / "headroom.json", source_of(HOST, usual, own)
    held = _held(path)
    missing = [metric for metric in _metrics(config, usual, own) if metric not in held]
    for metric in missing:
        progress(f"headroom, {metric}")
        with one_thread():
            held[metric] = _measured(config, source.data, protocol, metric)
    if missing:
        content = {"schema": SCHEMA, "oracle": ORACLE, "headroom": held}
        write_text(path, json.dumps(content, indent=1) + "\n")


def _held(path: Path) -> dict[str, Any]:
    """By metric; nothing where the file is missing or cannot be used."""
    try:
        found = json.loads(path.read_text("utf-8"))
        held = found["headroom"].items() if found["schema"] == SCHEMA else ()
        return {metric: own for metric, own in held if isinstance(own["rates"], dict)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _metrics(config: RunConfig, usual: Source, own: Own) -> list[str]:
    """Metrics of the methods that work on the same embeddings as nearest mean does."""
    source = source_of(HOST, usual, own)
    mine = [m for m in config.methods if source_of(m, usual, own) is source]
    named = {config.metric or default_metric(method) for method in mine}
    return [metric for metric in METRICS if metric in named or "auto" in named]


def _measured(
    config: RunConfig, data: Embeddings, protocol: Protocol, metric: str
) -> dict[str, Any]:
    shown = config.shown_draw(HOST)
    draw = make_draw(shown, protocol, data.y_train, data.learnable())
    rates, images = measure(data, protocol, draw, metric, config.seeds[0])
    plain = {
        oracle: {k: None if v != v else v for k, v in found.items()}
        for oracle, found in rates.items()
    }
    return {"draw": shown, "images": images, "rates": plain}


def measure(
    data: Embeddings, protocol: Protocol, draw: ShotDraw, metric: str, seed: int = 0
) -> tuple[dict[str, dict[str, float]], int]:
    """`headroom` of nearest mean after the last session of a draw, and the images scored."""
    few = fit_method(HOST, data, protocol, seed=seed, metric=metric)
    full = few.fork()
    for rows in draw.rows:
        few.add(data.shots(rows), data.y_train[rows])
    learnable = data.learnable()
    for label in range(protocol.base, protocol.n_classes):
        rows = np.flatnonzero((data.y_train == label) & learnable)
        full.add(data.x_train[rows], data.y_train[rows])
    data = for_figures(data, protocol.n_classes)
    seen = data.y_test < protocol.n_classes
    unit, own = few.embed(loaded(data.x_test)[seen]), data.y_test[seen]
    found = headroom(few.unit_logits(unit), full.unit_logits(unit), own, protocol.base)
    return found, len(own)
