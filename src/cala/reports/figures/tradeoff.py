"""The base/novel trade-off: what any constant shift could reach, and where each method stands."""

from __future__ import annotations

import numpy as np

from cala.metrics import TradeOff
from cala.reports.figures.picture import Picture
from cala.reports.figures.style import INK, look, make_figure
from cala.reports.naming import clipped
from cala.reports.study import Study

POINTS = 300  # of a curve that may have thousands
MARKS = 8  # along a curve, so that it is known without its colour


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
        step = max(1, len(x) // MARKS)
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
    keep = np.unique(np.linspace(0, len(curve.base) - 1, POINTS).astype(int))
    return 100 * curve.base[keep], 100 * curve.novel[keep]
