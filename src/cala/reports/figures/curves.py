"""Accuracy over sessions with interval bands (Fig. figcurve)."""

from __future__ import annotations

from cala.reports.figures.picture import Picture
from cala.reports.figures.style import band, end_labels, look, make_figure, sessions_axis, tint
from cala.reports.naming import clipped
from cala.reports.study import Study
from cala.reports.words import over_draws


def curves(study: Study) -> Picture:
    """Accuracy of every method, and its paired difference to the first."""
    methods, last = study.methods, study.sessions
    both = len(methods) > 1
    height = max(3.1, 0.17 * len(methods) + 1.2)
    figure, axes = make_figure(1 + both, height)
    top = axes[0]
    for i, method in enumerate(methods):
        band(top, range(last + 1), study.per_session(method, "accuracy"), look(i), len(methods))
    top.set_title("accuracy, %")
    sessions_axis(top, 0, last)
    target, ends = top, []
    if both:
        below = axes[1]
        for i, method in enumerate(methods):
            gains = study.gains(method, study.reference)
            band(below, range(last + 1), gains, look(i), len(methods))
            ends.append((gains[-1].mean, clipped(method, 28), *tint(i)))
        below.set_title(f"points above {clipped(study.reference, 18)}")
        sessions_axis(below, 0, last)
        target = below
    else:
        found = study.per_session(methods[0], "accuracy")
        ends = [(found[-1].mean, clipped(methods[0], 28), *tint(0))]
    figure.draw_without_rendering()
    end_labels(target, ends)
    paired_to = f", and paired differences to {study.reference}"
    caption = (
        f"Accuracy over all classes seen so far{paired_to if both else ''}. "
        f"{over_draws(study, band=True)}"
    )
    alt = f"Accuracy of {len(methods)} methods over sessions 0 to {last} on {study.dataset}."
    return Picture("curves", "Accuracy over sessions", caption, alt, figure)
