"""Headroom: what an oracle that sees test labels could reach. For reports alone.

Not a method: nothing here has a name in a registry, and nothing that is trained or selected reads
it.
Oracles are fitted to one half of the test images and scored on the other, both ways. What they
could reach at best lies between that and `fitted`, their accuracy where they were fitted, of which
a part is only remembered.

Logits are (n, C), columns in order of arrival, the first n_base of them base; `own` (n,) holds each
image's true column. `headroom.json` of a run has them for nearest mean, in each of its metrics:

    oracle    what a reader must know: it uses test labels
    headroom  metric -> draw, images (scored), rates: oracle -> rate -> fraction or null
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from cala.benchmark.config import RunConfig
from cala.benchmark.runner import fit_method
from cala.benchmark.scoring import for_figures, one_thread
from cala.benchmark.task import BenchTask
from cala.core.metric import METRICS
from cala.core.rows import Array, ClassRows, loaded
from cala.data.embeddings import Embeddings
from cala.data.protocol import Protocol, ShotDraw
from cala.files import read_whole, write_text
from cala.heads import default_metric
from cala.metrics import Answers, session_metrics

_SCHEMA = 1
_HOST = "nearest-mean"
ORACLE = "uses test labels; cannot be selected"
_RATES = ("accuracy", "base", "novel", "hm", "ausuc")
PASSES = 20  # over all novel classes, at most
LOG_SCALE = 6.0  # bound on the logarithm of a fitted scale
Oracle = Callable[[Array, Array, int], Array]


def headroom(few: Array, full: Array, own: Array, n_base: int) -> dict[str, dict[str, float]]:
    """Cross-fitted rates of each oracle, beside those without any.

    Parameters
    ----------
    few : (n, C) logits with novel prototypes from the shots
    full : (n, C) logits with novel prototypes from all training images
    own : (n,) true columns
    n_base : number of base columns
    """
    rows: dict[str, tuple[Array, Oracle]] = {
        "plain": (few, no_shift),
        "single_shift": (few, single_shift),
        "class_shifts": (few, class_shifts),
        "likely_class_shifts": (few, likely_shifts),
        "all_images": (full, no_shift),
        "all_images_single_shift": (full, single_shift),
    }
    first = halves(own)
    return {name: cross_fitted(z, own, n_base, first, fit) for name, (z, fit) in rows.items()}


def halves(own: Array) -> Array:
    """(n,) bool: the first of two halves, every class split evenly.

    >>> int(halves(np.array([0, 0, 1, 1, 1, 1])).sum())
    3
    """
    order = np.lexsort((np.random.default_rng(0).random(len(own)), own))
    rows = ClassRows(order, own[order], int(own.max(initial=-1)) + 1)
    first = np.empty(len(own), bool)
    # The odd image of a class goes to either half in turn.
    first[order] = (rows.ranks + rows.columns) % 2 == 0
    return first


def cross_fitted(
    logits: Array, own: Array, n_base: int, first: Array, fit: Oracle
) -> dict[str, float]:
    """Rates of each half under the shifts fitted to the other, averaged; `fitted`: accuracy of
    each half under its own."""
    found, fitted = [], []
    for train, test in ((first, ~first), (~first, first)):
        shifted = logits.astype(np.float64)
        shifted[:, n_base:] += fit(logits[train], own[train], n_base)
        found.append(session_metrics(shifted[test], own[test], n_base))
        fitted.append(session_metrics(shifted[train], own[train], n_base).accuracy)
    rates = {rate: float(np.mean([getattr(m, rate) for m in found])) for rate in _RATES}
    return {**rates, "fitted": float(np.mean(fitted))}


def no_shift(logits: Array, own: Array, n_base: int) -> Array:
    """(N,) zeros."""
    return np.zeros(logits.shape[1] - n_base)


def single_shift(logits: Array, own: Array, n_base: int) -> Array:
    """(N,) the one shift of all novel columns with the most images right."""
    best = Answers.of(logits, own, n_base)
    right = (best.base_column == own, best.novel_column == own)
    return np.full(logits.shape[1] - n_base, _best_step(best.base - best.novel, *right))


def class_shifts(logits: Array, own: Array, n_base: int) -> Array:
    """(N,) a shift for each novel column, by coordinate ascent from the best single one.

    Every step is the best that one column can do, and is taken only if more images are right.
    """
    shifts = single_shift(logits, own, n_base)
    best = Answers.of(logits, own, n_base)
    base, base_right = best.base, best.base_column == own
    # A column behind the last one, so that there always is a second best.
    novel = np.column_stack([logits[:, n_base:] + shifts, np.full(len(logits), -np.inf)])
    rows, top = np.arange(len(novel)), _two_best(novel)
    for _ in range(PASSES):
        before = shifts.copy()
        for column in range(len(shifts)):
            rival = np.where(top[:, 0] == column, top[:, 1], top[:, 0])
            rest = novel[rows, rival]
            right = np.where(base >= rest, base_right, rival + n_base == own)
            switch = np.maximum(base, rest) - novel[:, column]
            step = _best_step(switch, right, own == n_base + column)
            if step:
                shifts[column] += step
                novel[:, column] += step
                stale = (top == column).any(1) | (novel[:, column] >= novel[rows, top[:, 1]])
                top[stale] = _two_best(novel[stale])
        if np.array_equal(before, shifts):
            break
    return shifts


def likely_shifts(logits: Array, own: Array, n_base: int) -> Array:
    """(N,) a shift for each novel column, by maximum likelihood with a free scale.

    It remembers less than `class_shifts` does: cross-entropy counts all images, not only those at
    the border.
    """
    z = logits.astype(np.float64)
    rows = np.arange(len(z))

    def loss(values: Array) -> tuple[float, Array]:
        scale = np.exp(values[0])
        p = scale * z
        p[:, n_base:] += values[1:]
        p -= p.max(1, keepdims=True)
        mine = p[rows, own]
        np.exp(p, out=p)  # in place: test sets may be large
        total = p.sum(1)
        p /= total[:, None]
        p[rows, own] -= 1
        slope = np.append(scale * np.vdot(p, z), p[:, n_base:].sum(0))
        return float(np.mean(np.log(total) - mine)), slope / len(z)

    free = z.shape[1] - n_base
    bounds = [(-LOG_SCALE, LOG_SCALE), *[(None, None)] * free]
    found = minimize(loss, np.zeros(1 + free), jac=True, method="L-BFGS-B", bounds=bounds).x
    return found[1:] / np.exp(found[0])


def _two_best(logits: Array) -> Array:
    """(n, 2) columns of each row's largest and second largest logit."""
    return np.argsort(-logits, axis=1, kind="stable")[:, :2]


def _best_step(switch: Array, without: Array, with_it: Array) -> float:
    """The step of some columns with the most images right; 0 where no step gains any.

    switch : (n,) the step at which an image goes over to these columns
    without, with_it : (n,) whether it is right before and after that

    Of equally good stretches the one nearest to 0 is taken, and of it the middle.
    """
    change = with_it.astype(int) - without
    moved = change != 0
    at, inverse = np.unique(switch[moved], return_inverse=True)
    if not len(at):
        return 0.0
    gain = np.concatenate([[0], np.cumsum(np.bincount(inverse, change[moved]))])
    start, end = np.append(-np.inf, at), np.append(at, np.inf)
    now = int(np.searchsorted(at, 0.0))  # an image exactly at its switch has not switched
    best = np.flatnonzero(gain == gain.max())
    if now in best:
        return 0.0
    distance = np.maximum(start[best], -end[best])  # from 0 to a stretch that does not hold it
    place = best[distance.argmin()]
    low, high = float(start[place]), float(end[place])
    if np.isfinite([low, high]).all():
        return (low + high) / 2
    edge = low if np.isfinite(low) else high
    return edge + np.copysign(1e-6 * max(1.0, abs(edge)), edge)  # just inside


def keep_headroom(
    out: Path, config: RunConfig, task: BenchTask, status: Callable[[str], None]
) -> None:
    """Write what is missing of a run's `headroom.json`; its draw is the one that figures show."""
    if not task.protocol.sessions or config.gamma is not None:
        return  # no novel class to shift; or one run of many that differ in γ alone
    path = out / "headroom.json"
    held = _held(path)
    missing = [metric for metric in _metrics(config, task) if metric not in held]
    for metric in missing:
        status(f"headroom, {metric}")
        with one_thread():
            held[metric] = _measured(config, task, metric)
    if missing:
        content = {"schema": _SCHEMA, "oracle": ORACLE, "headroom": held}
        write_text(path, json.dumps(content, indent=1) + "\n")


def _held(path: Path) -> dict[str, Any]:
    """By metric; nothing where the file is missing or cannot be used."""
    try:
        found = json.loads(read_whole(path))
        held = found["headroom"].items() if found["schema"] == _SCHEMA else ()
        return {metric: own for metric, own in held if isinstance(own["rates"], dict)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _metrics(config: RunConfig, task: BenchTask) -> list[str]:
    """Metrics of the methods that work on the same embeddings as nearest mean does."""
    mine = [m for m in config.methods if task.source_of(m) is task.source_of(_HOST)]
    named = {config.metric or default_metric(method) for method in mine}
    return [metric for metric in METRICS if metric in named or "auto" in named]


def _measured(config: RunConfig, task: BenchTask, metric: str) -> dict[str, Any]:
    data, draw = task.source_of(_HOST).data, task.draw(config.shown_draw(_HOST))
    rates, images = measure(data, task.protocol, draw, metric, config.seeds[0])
    plain = {
        oracle: {k: None if v != v else v for k, v in found.items()}
        for oracle, found in rates.items()
    }
    return {"draw": draw.name, "images": images, "rates": plain}


def measure(
    data: Embeddings, protocol: Protocol, draw: ShotDraw, metric: str, seed: int = 0
) -> tuple[dict[str, dict[str, float]], int]:
    """`headroom` of nearest mean after the last session of a draw, and the images scored."""
    few = fit_method(_HOST, data, protocol, seed=seed, metric=metric)
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
