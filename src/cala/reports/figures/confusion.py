"""Confusion matrices without and with the adapter (Fig. figcm)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cala.reports.artifact import Array
from cala.reports.figures.picture import Picture
from cala.reports.figures.style import INK, NOVEL, make_figure
from cala.reports.study import Study
from cala.reports.tables.confused import row_shares
from cala.reports.words import one_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE = (0.0, 0.32, 0.62)
POWER = 0.4  # of the share, so that rare mistakes show
NAMED = 12  # up to so many classes every row is named


def confusion(study: Study, method: str) -> Picture | None:
    """Rows are true classes; shade grows with the share of the row."""
    artifact = study.artifacts[method]
    found = {when: artifact.confusion(when) for when in ("before", "after")}
    counts = {k: v for k, v in found.items() if v is not None}
    if not counts:
        return None
    single = len(counts) == 1 or not study.adapter(method)
    if single:
        counts = {"after": counts["after"]}
    figure, axes = make_figure(len(counts), 4.2 if len(counts) == 2 else 5.0, sharey=True)
    for panel, (when, matrix) in zip(axes, counts.items(), strict=True):
        share = row_shares(matrix)
        panel.imshow(_shade(share), extent=(0, len(share), len(share), 0))
        _frame(panel, artifact.n_base, artifact.n_classes)
        b = artifact.n_base
        lost = 100 * matrix[b:, :b].sum() / max(matrix[b:].sum(), 1)
        title = method if single else {"before": "without", "after": "with"}[when] + " adapter"
        panel.set_title(f"{title}: {lost:.0f} % of novel to base")
        panel.set_xlabel("predicted class")
    axes[0].set_ylabel("true class")
    if artifact.n_classes <= NAMED:
        axes[0].set_yticks(np.arange(artifact.n_classes) + 0.5, [n[:20] for n in artifact.names()])
    caption = (
        f"{method}; {one_cell(study, method)}. Classes in order of arrival, rows are true classes; "
        f"the stronger the colour, the larger the share of the row (to the power {POWER}, so that "
        f"rare mistakes show); the lines separate {artifact.n_base} base from "
        f"{artifact.n_classes - artifact.n_base} novel classes; lower left: novel taken for base."
    )
    alt = "Confusion matrices without and with the adapter; the lower left is novel taken for base."
    return Picture("confusion", "Confusion matrices", caption, alt, figure)


def _frame(panel: Axes, n_base: int, n_classes: int) -> None:
    from matplotlib.ticker import MaxNLocator

    panel.grid(False)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    for spine in panel.spines.values():
        spine.set_visible(True)
    if n_base < n_classes:
        panel.axhline(n_base, color=NOVEL, lw=1.2)
        panel.axvline(n_base, color=NOVEL, lw=1.2)
        ends = (n_base / 2, (n_base + n_classes) / 2)
        for place, name in zip(ends, ("base", "novel"), strict=True):
            panel.text(
                1.01, 1 - place / n_classes, name, transform=panel.transAxes, rotation=270,
                va="center", fontsize=8, color=INK,
            )  # fmt: skip


def _shade(share: Array) -> Array:
    """RGBA: one blue, as opaque as the share is large, so that it works on any paper."""
    image = np.empty((*share.shape, 4))
    image[..., :3] = BLUE
    image[..., 3] = share**POWER
    return image
