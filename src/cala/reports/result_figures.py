"""Figures of what methods reach: over sessions, over γ, and between base and novel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cala.reports.drawing import BASE, COLOURS, INK, NOVEL, Picture, clipped, make_figure
from cala.reports.phrases import over_draws
from cala.reports.result_tables import GammaSweep
from cala.reports.study import Study
from cala.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
MARKERS = "os^DvPX<>*hpd8"
_CURVE_POINTS = 300  # of a curve that may have thousands
LABEL_GAP = 11.5  # smallest distance of two labels, in points
CURVE_MARKS = 8  # along a curve, so that it is known without its colour
End = tuple[float, str, dict[str, Any]]


def curves(study: Study) -> Picture:
    """Accuracy over sessions (Fig. figcurve), and each method's paired difference to the first."""
    methods, first = study.methods, study.reference
    both = len(methods) > 1
    figure, axes = make_figure(1 + both, _height(study))
    ends = _lines(axes[0], study, 0, lambda m: study.per_session(m, "accuracy"), "accuracy, %")
    if both:
        title = f"points above {clipped(first, 18)}"
        ends = _lines(axes[1], study, 0, lambda m: study.gains(m, first), title)
    end_labels(axes[-1], ends)
    seen = "Accuracy over all classes seen so far"
    differences = f", and paired differences to {first}" if both else ""
    caption = f"{seen}{differences}. {over_draws(study, band=True, brief=True)}"
    alt = f"Accuracy of {len(methods)} methods in {study.sessions + 1} sessions on {study.dataset}."
    return Picture("curves", "Accuracy over sessions", caption, alt, figure)


def rates(study: Study) -> Picture:
    """FPR and its mirror over sessions: what one gains the other pays."""
    figure, axes = make_figure(2, _height(study))
    panels = {"fpr": "novel taken for base, %", "fpr_mirror": "base taken for novel, %"}
    for panel, (column, title) in zip(axes, panels.items(), strict=True):
        ends = _lines(panel, study, 1, lambda m, c=column: study.per_session(m, c)[1:], title)  # type: ignore[misc]
        panel.set_ylim(bottom=0)
    end_labels(axes[-1], ends)
    caption = (
        "Left: novel test images that go to base classes (FPR). Right: base test images that go to "
        f"novel classes. {over_draws(study, band=True, brief=True)}"
    )
    alt = f"False-positive rate and its mirror of {len(study.methods)} methods over sessions."
    return Picture("rates", "Confusion between base and novel", caption, alt, figure)


def gamma_curve(sweep: GammaSweep) -> Picture:
    """Accuracy in the last session and on average, values of γ evenly spaced."""
    figure, (axes,) = make_figure(1, 2.8, width=5.4)
    x = np.arange(len(sweep.points))
    ends = []
    lines = (("avg", "Avg", BASE, "s"), ("last", "last session", NOVEL, "o"))
    for name, label, colour, marker in lines:
        found = [getattr(point, name) for point in sweep.points]
        mean, half = [f.mean for f in found], np.nan_to_num([f.half for f in found])
        style: dict[str, Any] = {"color": colour, "marker": marker}
        axes.errorbar(x, mean, half, **style, capsize=2, elinewidth=1)
        ends.append((float(mean[-1]), label, style))
    best = int(np.nanargmax(mean))
    axes.annotate(
        f"{mean[best]:.1f}", (float(x[best]), mean[best]), xytext=(0, -9), ha="center", va="top",
        textcoords="offset points", fontsize=8, color=INK,
    )  # fmt: skip
    axes.set_xticks(x, [f"{p.gamma:g}" for p in sweep.points])
    axes.set(xlabel="γ at inference", title="accuracy, %")
    axes.margins(y=0.12)
    end_labels(axes, ends)
    caption = f"{sweep.method}, trained once. {sweep.source} Numbered: the best last session."
    alt = f"Accuracy against γ; the last session is best at γ = {sweep.points[best].gamma:g}."
    return Picture("gamma", "γ at inference", caption, alt, figure)


def tradeoff(study: Study) -> Picture | None:
    """One curve per method, its operating point marked, AUSUC in the legend."""
    found = []
    for i, method in enumerate(study.methods):
        artifact = study.artifacts.get(method)
        curve = artifact.trade_off() if artifact else None
        if curve is not None and np.isfinite(curve.area):
            found.append((curve.area, i, method, curve))
    if not found:
        return None
    figure, (axes,) = make_figure(1, max(3.6, 0.2 * len(found) + 1.4))
    for area, i, method, curve in sorted(found, key=lambda f: -f[0]):
        style = look(i)
        marker = style.pop("marker")
        base, novel = 100 * curve.base, 100 * curve.novel
        keep = np.unique(np.linspace(0, len(base) - 1, _CURVE_POINTS).astype(int))
        step = max(1, len(keep) // CURVE_MARKS)
        marks = {"marker": marker, "ms": 3.5, "markevery": (i * step // len(found), step)}
        axes.plot(base[keep], novel[keep], **style, lw=1.3, **marks)
        here = np.searchsorted(curve.delta, 0.0, side="left") - 1
        large = {"color": style["color"], "ms": 8.5, "mec": INK, "mew": 1.0, "zorder": 5}
        axes.plot(base[here], novel[here], marker, **large)
        label = f"{clipped(method)}: {100 * area:.1f}"
        axes.plot([], [], marker=marker, ms=6, label=label, **style)
    axes.legend(
        title="AUSUC, %", loc="center left", bbox_to_anchor=(1.01, 0.5), alignment="left",
        handlelength=3.2,
    )  # fmt: skip
    axes.set(xlabel="base accuracy, %", ylabel="novel accuracy, %")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(True, axis="both")
    draw = study.artifacts[found[0][2]].draw
    caption = (
        f"Every point of a curve is what one constant shift of all novel classes would give; the "
        f"large outlined marker is where the method stands. One draw ({draw}, n = 1), last "
        f"session, {study.split} images; intervals of AUSUC are in the main table."
    )
    alt = f"Trade-off curves of {len(found)} methods; {max(found)[2]} has the largest area."
    return Picture("tradeoff", "Base/novel trade-off", caption, alt, figure)


def _height(study: Study) -> float:
    return max(3.1, 0.17 * len(study.methods) + 1.2)


def _lines(
    panel: Axes, study: Study, first: int, of: Callable[[str], list[Interval]], title: str
) -> list[End]:
    """A line per method over sessions; where the lines end, for their names."""
    ends = []
    for i, method in enumerate(study.methods):
        found = of(method)
        band(panel, range(first, first + len(found)), found, look(i), len(study.methods))
        ends.append((found[-1].mean, clipped(method, 28), look(i)))
    last = study.sessions
    panel.set(title=title, xlabel="session", xticks=range(first, last + 1, 1 + (last - first > 12)))
    if first == last:
        panel.set_xlim(first - 0.5, last + 0.5)
    return ends


def look(index: int) -> dict[str, Any]:
    """Colour, line and marker of the method at this place; no two of the first 28 are alike."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": LINES[index % len(LINES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def band(
    axes: Axes, x: Sequence[int], found: Sequence[Interval], style: dict[str, Any], among: int
) -> None:
    """A line of means with a band of their intervals; among : how many lines share the axes"""
    alpha = 0.15 if among <= 5 else 0.07 if among <= 8 else 0.03
    mean = np.array([f.mean for f in found])
    half = np.nan_to_num([f.half for f in found])
    axes.fill_between(x, mean - half, mean + half, color=style["color"], alpha=alpha, lw=0)
    axes.plot(x, mean, **style)


def end_labels(axes: Axes, ends: Sequence[End]) -> None:
    """Names at the right end of lines, moved apart where they would overlap.

    ends : (height in data, name, look)
    """
    axes.get_figure(root=True).draw_without_rendering()  # type: ignore[union-attr]
    ends = sorted((end for end in ends if end[0] == end[0]), key=lambda end: end[0])
    low, high = axes.get_ylim()
    points = axes.get_window_extent().height * 72 / axes.figure.dpi
    heights = spread([end[0] for end in ends], LABEL_GAP * (high - low) / points, low, high)
    across: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "clip_on": False}
    for (value, name, style), height in zip(ends, heights, strict=True):
        colour = style["color"]
        axes.plot([1.0, 1.035], [value, height], color=colour, lw=0.7, **across)
        axes.plot(1.05, height, style["marker"], color=colour, ms=3.5, **across)
        axes.text(1.075, height, name, color=colour, va="center", fontsize=8, **across)


def spread(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Sorted values moved as little as needed to be `gap` apart and, if possible, inside.

    >>> spread([1.0, 1.0, 5.0], 1.0, 0.0, 10.0)
    [0.5, 1.5, 5.0]
    """
    from sklearn.isotonic import isotonic_regression

    if not values:
        return []
    steps = gap * np.arange(len(values))
    room = high - low - steps[-1]
    if room < 0:
        found = (low + high - steps[-1]) / 2 + steps
    else:  # without the steps they only have to stay in order
        found = isotonic_regression(values - steps, y_min=low, y_max=low + room) + steps
    return [float(value) for value in found]
