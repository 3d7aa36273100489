"""Gains and losses of single classes."""

from __future__ import annotations

import numpy as np

from cala.reports.figures.picture import Picture
from cala.reports.figures.style import BASE, INK, MUTED, NOVEL, PAPER, class_axis, make_figure
from cala.reports.naming import clipped
from cala.reports.study import Study
from cala.reports.tables.classes import ClassGains
from cala.reports.words import one_cell

NAMED = 8


def classes(study: Study, gains: ClassGains) -> Picture:
    """All classes in order of arrival, and the largest gains and losses by name."""
    named = gains.extremes(NAMED)
    height = max(3.2, 0.19 * len(named) + 0.9)
    figure, axes = make_figure(2, height, gridspec_kw={"width_ratios": [1.25, 1]})
    left, right = axes
    count, b = len(gains.gain), gains.n_base
    colours = [BASE] * b + [NOVEL] * (count - b)
    left.bar(np.arange(count), gains.gain, color=colours, width=0.8)
    left.axhline(0, color=MUTED, lw=0.7)
    if b < count:
        left.axvline(b - 0.5, color=INK, lw=0.8, ls="--")
    class_axis(left, count)
    left.set_title("gain in accuracy, points")
    for start, stop, name, colour in ((0, b, "base", BASE), (b, count, "novel", NOVEL)):
        part = gains.gain[start:stop]
        if len(part):
            mean = f"{name}: {part.mean():+.1f}".replace("-", "−")
            left.text(
                (start + stop - 1) / 2, 0.99, mean, color=colour,
                ha="center", va="top", fontsize=8, transform=left.get_xaxis_transform(),
            )  # fmt: skip
    left.margins(y=0.12)
    place = np.arange(len(named))[::-1]
    right.barh(
        place, gains.gain[named], color=[colours[i] for i in named], height=0.7,
        hatch=["" if i < b else "///" for i in named], edgecolor=PAPER, lw=0,
    )  # fmt: skip
    right.set_yticks(place, [clipped(gains.names[i], 26) for i in named])
    right.axvline(0, color=MUTED, lw=0.7)
    right.grid(True, axis="x")
    right.grid(False, axis="y")
    right.set_title("largest, by name")
    if not named:
        right.text(0.5, 0.5, "no class changes", transform=right.transAxes, ha="center")
    caption = (
        f"Accuracy of each class with {gains.method} minus that of {gains.against}; "
        f"{one_cell(study, gains.method)}. The means over base and over novel classes stand above; "
        "hatched by name: novel."
    )
    alt = (
        f"{int((gains.gain > 0).sum())} classes gain, {int((gains.gain < 0).sum())} lose with "
        f"{gains.method}."
    )
    return Picture("classes", "Gains and losses per class", caption, alt, figure)
