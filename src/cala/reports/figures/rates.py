"""Novel images taken for base classes, and base images taken for novel ones, over sessions."""

from __future__ import annotations

from cala.reports.figures.picture import Picture
from cala.reports.figures.style import band, end_labels, look, make_figure, sessions_axis, tint
from cala.reports.naming import clipped
from cala.reports.study import Study
from cala.reports.words import over_draws

PANELS = {"fpr": "novel taken for base, %", "fpr_mirror": "base taken for novel, %"}


def rates(study: Study) -> Picture:
    """FPR and its mirror: what one gains the other pays."""
    height = max(3.1, 0.17 * len(study.methods) + 1.2)
    figure, axes = make_figure(2, height)
    ends = []
    for panel, (column, title) in zip(axes, PANELS.items(), strict=True):
        for i, method in enumerate(study.methods):
            found = study.per_session(method, column)[1:]
            band(panel, range(1, len(found) + 1), found, look(i), len(study.methods))
            if column == "fpr_mirror" and found:
                ends.append((found[-1].mean, clipped(method, 28), *tint(i)))
        panel.set_title(title)
        panel.set_ylim(bottom=0)
        sessions_axis(panel, 1, study.sessions)
    figure.draw_without_rendering()
    end_labels(axes[-1], ends)
    caption = (
        "Left: novel test images that go to base classes (FPR). Right: base test images that go to "
        f"novel classes. {over_draws(study, band=True)}"
    )
    alt = f"False-positive rate and its mirror of {len(study.methods)} methods over sessions."
    return Picture("rates", "Confusion between base and novel", caption, alt, figure)
