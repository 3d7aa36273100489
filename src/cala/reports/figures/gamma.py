"""γ at inference as a curve (Table tabcifargamma)."""

from __future__ import annotations

import numpy as np

from cala.reports.figures.picture import Picture
from cala.reports.figures.style import BASE, INK, NOVEL, end_labels, make_figure
from cala.reports.tables.gamma import GammaSweep


def gamma_curve(sweep: GammaSweep) -> Picture:
    """Accuracy in the last session and on average, values of γ evenly spaced."""
    figure, (axes,) = make_figure(1, 2.8, width=5.4)
    x = np.arange(len(sweep.points))
    ends = []
    for name, colour, marker in (("avg", BASE, "s"), ("last", NOVEL, "o")):
        found = [getattr(point, name) for point in sweep.points]
        mean, half = [f.mean for f in found], np.nan_to_num([f.half for f in found])
        axes.errorbar(x, mean, half, color=colour, marker=marker, capsize=2, elinewidth=1)
        label = {"avg": "Avg", "last": "last session"}[name]
        ends.append((float(mean[-1]), label, colour, marker))
        if name == "avg":
            continue
        best = int(np.nanargmax(mean))
        axes.annotate(
            f"{mean[best]:.1f}",
            (float(x[best]), mean[best]),
            xytext=(0, -9),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=8,
            color=INK,
        )
    axes.set_xticks(x, [f"{p.gamma:g}" for p in sweep.points])
    axes.set_xlabel("γ at inference")
    axes.set_title("accuracy, %")
    axes.margins(y=0.12)
    figure.draw_without_rendering()
    end_labels(axes, ends)
    caption = f"{sweep.method}, trained once. {sweep.source} Numbered: the best last session."
    top = max(sweep.points, key=lambda p: p.last.mean)
    alt = f"Accuracy against γ; the last session is best at γ = {top.gamma:g}."
    return Picture("gamma", "γ at inference", caption, alt, figure)
