"""Novel classes that lose images to base classes, before and after adjustment."""

from __future__ import annotations

import numpy as np

from cala.reports.figures.picture import Picture
from cala.reports.figures.style import BASE, MUTED, NOVEL, PAPER, make_figure
from cala.reports.naming import clipped
from cala.reports.study import Study
from cala.reports.tables.confused import swallowed
from cala.reports.words import one_cell

SHOWN = 15


def swallowed_figure(study: Study, method: str) -> Picture | None:
    """One line per novel class: share of its images given to base classes, then and now."""
    artifact = study.artifacts[method]
    found = swallowed(artifact)[:SHOWN]
    if not found:
        return None
    names = artifact.names()
    figure, (axes,) = make_figure(1, 0.23 * len(found) + 1.0)
    place = np.arange(len(found))[::-1]
    now = np.array([100 * s.share for s in found])
    axes.plot(now, place, "o", color=NOVEL, ms=6, label="with adapter", zorder=3)
    before = [s.share_before for s in found]
    if study.adapter(method) and all(v is not None for v in before):
        then = np.array([100 * (v or 0.0) for v in before])
        axes.hlines(place, now, then, color=MUTED, lw=1.2)
        axes.plot(then, place, "s", color=BASE, mfc=PAPER, ms=5, label="without", zorder=2)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.0 + 0.6 / len(found)), ncols=2)
    labels = [f"{clipped(names[s.column], 20)} → {clipped(names[s.by[0][0]], 20)}" for s in found]
    axes.set_yticks(place, labels)
    axes.set_ylim(-0.7, len(found) - 0.3)
    axes.set_xlabel("share of the novel class's images given to base classes, %")
    axes.set_xlim(0, 100)
    axes.grid(True, axis="x")
    axes.grid(False, axis="y")
    caption = (
        f"{method}: the {len(found)} novel classes that lose most images to base (behind the "
        f"arrow: the class that takes most); {one_cell(study, method)}."
    )
    alt = f"Novel classes lost to base classes; worst: {labels[0]}."
    return Picture("swallowed", "Swallowed novel classes", caption, alt, figure)
