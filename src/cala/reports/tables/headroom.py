"""Headroom: oracles on nearest mean beside the methods of the run, on one draw."""

from __future__ import annotations

import math

from cala.reports.headroom import Headroom
from cala.reports.study import Study
from cala.reports.table import Cell, Row, Table, plain, text

#: Oracle in `headroom.json` -> how its row is called.
ROWS = {
    "plain": "nearest mean, no shift",
    "single_shift": "oracle: best single shift",
    "class_shifts": "oracle: best shift per novel class",
    "likely_class_shifts": "oracle: likeliest shift per novel class",
    "all_images": "oracle: prototypes of all training images",
    "all_images_single_shift": "oracle: the same, best single shift",
}
#: Oracles that maximise accuracy, so that their accuracy where they were fitted is a bound.
BOUNDED = ("single_shift", "class_shifts", "all_images_single_shift")
HOST = "nearest-mean"
#: Rate in `headroom.json` -> the column of results, and how it is called.
RATES = {
    "accuracy": ("last", "last"),
    "base": ("base", "base"),
    "novel": ("novel", "novel"),
    "hm": ("hm", "HM"),
    "ausuc": ("ausuc", "AUSUC"),
}
WORDS = (
    "Rows named oracle show what nearest mean would reach with shifts fitted to labelled test "
    "images, or with prototypes from all training images of the novel classes instead of the "
    "shots; an oracle uses test labels and cannot be selected.",
    "Shifts per novel class minus the best single shift is about what a class-aware shift can "
    "still gain on this encoder; what prototypes of all training images reach above that is the "
    "price of few shots, which no shift pays back.",
)


def headroom_table(study: Study) -> Table | None:
    """In each metric the oracles, then the methods that work in it."""
    rows: list[Row] = []
    notes = []
    for found in study.headroom.values():
        rows += _oracles(found)
        rows += [_method(study, m, found) for m in study.methods if _comparable(study, m, found)]
        notes += _gains(found)
    if not rows:
        return None
    first = next(iter(study.headroom.values()))
    draws = ", ".join(dict.fromkeys(found.draw for found in study.headroom.values()))
    caption = (
        f"Percent, after the last session of one draw ({draws}), n = {first.images:,} "
        f"{study.split} images, so there is no interval. Oracles use test labels and cannot be "
        "selected: they are fitted to one half of the images and scored on the other, both ways, "
        "averaged. Fitted half: accuracy where they were fitted, too good because part of it is "
        "only remembered; the best that such a shift could reach lies between this and last. "
        "Methods use no test label and are scored on all images; one that is not on nearest mean "
        "changes more than shifts, and may lie above them."
    )
    columns = ["classifier", "metric", *(name for _, name in RATES.values()), "fitted half"]
    return Table("headroom", "Headroom (oracle)", caption, columns, rows, notes)


def _oracles(found: Headroom) -> list[Row]:
    rows = []
    for oracle, name in ROWS.items():
        rates = found.rates.get(oracle, {})
        if rates:
            fitted = rates.get("fitted") if oracle in BOUNDED else None
            cells = [_percent(rates.get(rate)) for rate in RATES]
            rows.append(Row([text(name), text(found.metric), *cells, _percent(fitted)]))
    return rows


def _method(study: Study, method: str, found: Headroom) -> Row:
    columns = [column for column, _ in RATES.values()]
    values = [study.results.values(method, column, [found.draw])[0] for column in columns]
    host = study.artifacts[method].meta.get("host")
    name = method if host == HOST or str(host) in method else f"{method} (on {host})"
    return Row([text(name), text(found.metric), *(plain(v, 1) for v in values), Cell()])


def _comparable(study: Study, method: str, found: Headroom) -> bool:
    """Whether a method has the same draw, metric and embeddings as the oracles.

    Nearest mean without an adapter is their first row already.
    """
    artifact = study.artifacts.get(method)
    if artifact is None or artifact.meta.get("metric") != found.metric:
        return False
    host = artifact.meta.get("host")
    if host == HOST and not artifact.meta.get("adapter"):
        return False
    for run in study.runs:
        apart = run.config.get("own_embeddings", {})
        trained = run.config.get("trained_in_sessions", [])
        if host in apart or host in trained:
            return False
    return bool(study.results.shared_draws([method], [found.draw]))


def _gains(found: Headroom) -> list[str]:
    """What each step is worth, in a sentence."""
    last = {oracle: rates.get("accuracy", math.nan) for oracle, rates in found.rates.items()}
    plain_, single = last.get("plain", math.nan), last.get("single_shift", math.nan)
    classes = max(last.get("class_shifts", math.nan), last.get("likely_class_shifts", math.nan))
    full = last.get("all_images", math.nan)
    steps = [single - plain_, classes - single, full - plain_]
    if any(math.isnan(step) for step in steps):
        return []
    one, each, images = (f"{100 * step:+.1f}".replace("-", "−") for step in steps)
    return [
        f"{found.metric}: knowing the best single shift is worth {one} points of last, the better "
        f"of the two shifts per novel class {each} more; prototypes of all training images are "
        f"worth {images} without any shift (oracles)."
    ]


def _percent(rate: float | None) -> Cell:
    return Cell() if rate is None else plain(100 * rate, 1)
