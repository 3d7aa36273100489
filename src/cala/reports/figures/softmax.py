"""Mean softmax probability per class before and after adjustment (Fig. figlogit)."""

from __future__ import annotations

import numpy as np

from cala.reports.figures.picture import Picture
from cala.reports.figures.style import BASE, INK, NOVEL, class_axis, make_figure
from cala.reports.study import Study
from cala.reports.words import one_cell


def softmax(study: Study, method: str) -> Picture | None:
    """Base and novel classes apart, in order of arrival; dashed: the same for all classes."""
    artifact = study.artifacts[method]
    if not artifact.has("softmax_before", "softmax_after"):
        return None
    figure, axes = make_figure(2, 2.9, sharey=True)
    top = 106 * max(artifact["softmax_before"].max(), artifact["softmax_after"].max())
    b, c = artifact.n_base, artifact.n_classes
    for panel, when in zip(axes, ("before", "after"), strict=True):
        values = 100 * artifact[f"softmax_{when}"].astype(float)
        for start, stop, colour, name in ((0, b, BASE, "base"), (b, c, NOVEL, "novel")):
            if start == stop:
                continue
            x, part = np.arange(start, stop), values[start:stop]
            panel.vlines(x, 0, part, color=colour, alpha=0.35, lw=max(0.8, min(3.0, 220 / c)))
            panel.plot(x, part, "." if name == "base" else "^", color=colour, ms=3)
            panel.hlines(part.mean(), start - 0.5, stop - 0.5, color=colour, lw=2)
            panel.annotate(
                f"{name}: mean {part.mean():.2f} %",
                ((start + stop - 1) / 2, 1.0),
                xycoords=("data", "axes fraction"),
                ha="center",
                va="bottom",
                color=colour,
                fontsize=8,
            )
        panel.axhline(100 / c, color=INK, lw=0.9, ls="--")
        class_axis(panel, c)
        panel.set_ylim(0, top)
    axes[0].set_title("before\n", loc="left")
    axes[1].set_title("after\n", loc="left")
    axes[0].set_ylabel("mean probability, %")
    caption = (
        f"Mean probability that each class is given, {method} before and after adjustment; "
        f"{one_cell(study, method)}. Dashed: 1/{c}, the same for all; thick: means."
    )
    alt = "Mean softmax probability of base and novel classes before and after adjustment."
    return Picture("softmax", "Probability per class", caption, alt, figure)
