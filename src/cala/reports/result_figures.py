"""Figures of what methods reach: over sessions, over γ, and between base and novel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cala.metrics import TradeOff
from cala.reports.drawing import (
    BASE,
    INK,
    NOVEL,
    End,
    Picture,
    band,
    clipped,
    end_labels,
    look,
    make_figure,
    sessions_axis,
)
from cala.reports.phrases import over_draws
from cala.reports.result_tables import GammaSweep
from cala.reports.study import Study
from cala.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVE_POINTS = 300  # of a curve that may have thousands
CURVE_MARKS = 8  # along a curve, so that it is known without its colour


def curves(study: Study) -> Picture:
    """Accuracy over sessions (Fig. figcurve), and each method's paired difference to the first."""
    methods, first = study.methods, study.reference
    both = len(methods) > 1
    figure, axes = make_figure(1 + both, _height(study))
    ends = _lines(axes[0], study, 0, lambda m: study.per_session(m, "accuracy"), "accuracy, %")
    if both:
        title = f"points above {clipped(first, 18)}"
        ends = _lines(axes[1], study, 0, lambda m: study.gains(m, first), title)
    figure.draw_without_rendering()
    end_labels(axes[-1], ends)
    differences = f", and paired differences to {first}" if both else ""
    caption = (
        f"Accuracy over all classes seen so far{differences}. "
        f"{over_draws(study, band=True, brief=True)}"
    )
    alt = (
        f"Accuracy of {len(methods)} methods over sessions 0 to {study.sessions} on "
        f"{study.dataset}."
    )
    return Picture("curves", "Accuracy over sessions", caption, alt, figure)


def rates(study: Study) -> Picture:
    """FPR and its mirror over sessions: what one gains the other pays."""
    figure, axes = make_figure(2, _height(study))
    panels = {"fpr": "novel taken for base, %", "fpr_mirror": "base taken for novel, %"}
    for panel, (column, title) in zip(axes, panels.items(), strict=True):
        ends = _lines(panel, study, 1, lambda m, c=column: study.per_session(m, c)[1:], title)  # type: ignore[misc]
        panel.set_ylim(bottom=0)
    figure.draw_without_rendering()
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
    for name, label, colour, marker in (
        ("avg", "Avg", BASE, "s"),
        ("last", "last session", NOVEL, "o"),
    ):
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
    axes.set_xlabel("γ at inference")
    axes.set_title("accuracy, %")
    axes.margins(y=0.12)
    figure.draw_without_rendering()
    end_labels(axes, ends)
    caption = f"{sweep.method}, trained once. {sweep.source} Numbered: the best last session."
    top = max(sweep.points, key=lambda p: p.last.mean)
    alt = f"Accuracy against γ; the last session is best at γ = {top.gamma:g}."
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
        x, y = _thinned(curve)
        step = max(1, len(x) // CURVE_MARKS)
        axes.plot(
            x, y, **style, lw=1.3, marker=marker, ms=3.5, markevery=(i * step // len(found), step)
        )
        place = np.searchsorted(curve.delta, 0.0, side="left") - 1
        here = (100 * curve.base[place], 100 * curve.novel[place])
        axes.plot(*here, marker, ms=8.5, color=style["color"], mec=INK, mew=1.0, zorder=5)
        label = f"{clipped(method)}: {100 * area:.1f}"
        axes.plot([], [], marker=marker, ms=6, label=label, **style)
    axes.legend(
        title="AUSUC, %",
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        alignment="left",
        handlelength=3.2,
    )
    axes.set_xlabel("base accuracy, %")
    axes.set_ylabel("novel accuracy, %")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(True, axis="both")
    draw = study.artifacts[found[0][2]].draw
    caption = (
        f"Every point of a curve is what one constant shift of all novel classes would give; the "
        f"large outlined marker is where the method stands. One draw ({draw}, n = 1), last "
        f"session, {study.split} images; intervals of AUSUC are in the main table."
    )
    best = max(found)
    alt = f"Trade-off curves of {len(found)} methods; {best[2]} has the largest area."
    return Picture("tradeoff", "Base/novel trade-off", caption, alt, figure)


def _thinned(curve: TradeOff) -> tuple[np.ndarray, np.ndarray]:
    keep = np.unique(np.linspace(0, len(curve.base) - 1, CURVE_POINTS).astype(int))
    return 100 * curve.base[keep], 100 * curve.novel[keep]


def _height(study: Study) -> float:
    return max(3.1, 0.17 * len(study.methods) + 1.2)


def _lines(
    panel: Axes, study: Study, first: int, of: Callable[[str], list[Estimate]], title: str
) -> list[End]:
    """A line per method over sessions; where the lines end, for their names."""
    ends = []
    for i, method in enumerate(study.methods):
        found = of(method)
        band(panel, range(first, first + len(found)), found, look(i), len(study.methods))
        ends.append((found[-1].mean, clipped(method, 28), look(i)))
    panel.set_title(title)
    sessions_axis(panel, first, study.sessions)
    return ends
