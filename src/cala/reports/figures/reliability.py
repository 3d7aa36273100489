"""Reliability of the probabilities before and after adjustment."""

from __future__ import annotations

import numpy as np

from cala.reports.figures.picture import Picture
from cala.reports.figures.style import BASE, INK, MUTED, NOVEL, make_figure
from cala.reports.study import Study
from cala.reports.tables.calibration import BINS, artifact_reliability
from cala.reports.words import one_cell

FEWEST = 10
SIDES = (("all", INK, "o"), ("base", BASE, "s"), ("novel", NOVEL, "^"))


def reliability_figure(study: Study, method: str) -> Picture | None:
    """Accuracy against confidence; a point's size is its share of the images."""
    artifact = study.artifacts[method]
    times = ["before", "after"] if study.adapter(method) else ["after"]
    if artifact_reliability(artifact, times[0]) is None:
        return None
    width = 7.4 if len(times) == 2 else 4.2
    figure, axes = make_figure(len(times), 3.8, width=width, sharey=True)
    alts = []
    for panel, when in zip(axes, times, strict=True):
        panel.plot([0, 1], [0, 1], color=MUTED, lw=0.8, ls="--")
        for side, colour, marker in SIDES:
            found = artifact_reliability(artifact, when, side)
            if found is None or not found.count.any():
                continue
            full = found.count >= FEWEST
            panel.plot(found.confidence[full], found.accuracy[full], color=colour, lw=1.0)
            area = 6 + 220 * found.count[full] / found.count.sum()
            panel.scatter(
                found.confidence[full], found.accuracy[full], s=area,
                color=colour, marker=marker, alpha=0.8, lw=0,
                label=f"{side}: ECE {found.ece:.1f}",
            )  # fmt: skip
            if side == "all":
                alts.append(f"{found.ece:.1f} {when}")
        title = {"before": "without adapter", "after": "with adapter"}[when]
        panel.set_title(title if len(times) == 2 else method)
        legend = panel.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3, handletextpad=0.2,
            columnspacing=1.0,
        )  # fmt: skip
        for handle in legend.legend_handles:
            handle.set_sizes([24])  # type: ignore[union-attr]
        panel.set_xlabel("confidence")
        panel.set_xlim(0, 1)
        panel.set_ylim(0, 1)
        panel.set_xticks(np.linspace(0, 1, 6))
    axes[0].set_ylabel("accuracy")
    caption = (
        f"{method}: share of right predictions against the probability given to them, {BINS} bins; "
        f"{one_cell(study, method)}. Below the diagonal: too sure. ECE in points; a point's area "
        f"grows with its share of the images; bins with fewer than {FEWEST} images are not drawn."
    )
    alt = f"Reliability diagram; expected calibration error {', '.join(alts)}."
    return Picture("reliability", "Reliability", caption, alt, figure)
