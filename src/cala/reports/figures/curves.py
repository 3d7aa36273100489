"""Accuracy over sessions with interval bands (Fig. figcurve)."""

from __future__ import annotations

from cala.reports.figures.picture import Picture
from cala.reports.figures.style import band, end_labels, look, make_figure, sessions_axis, tint
from cala.reports.naming import clipped
from cala.reports.study import Study
from cala.reports.words import over_draws
from cala.statistics import Estimate, estimate, paired


def curves(study: Study) -> Picture:
    """Accuracy of every method, and its paired difference to the first."""
    methods, last = study.methods, study.sessions
    both = len(methods) > 1
    height = max(3.1, 0.17 * len(methods) + 1.2)
    figure, axes = make_figure(1 + both, height)
    top = axes[0]
    for i, method in enumerate(methods):
        found = study.results.session_values(method, "accuracy", study.draws)
        band(top, range(len(found)), [estimate(v) for v in found], look(i), len(methods))
    top.set_title("accuracy, %")
    sessions_axis(top, 0, last)
    target, ends = top, []
    if both:
        below = axes[1]
        for i, method in enumerate(methods):
            gains = _gains(study, method)
            band(below, range(len(gains)), gains, look(i), len(methods))
            ends.append((gains[-1].mean, clipped(method, 28), *tint(i)))
        below.set_title(f"points above {clipped(study.reference, 18)}")
        sessions_axis(below, 0, last)
        target = below
    else:
        values = study.results.session_values(methods[0], "accuracy", study.draws)
        ends = [(estimate(values[-1]).mean, clipped(methods[0], 28), *tint(0))]
    figure.draw_without_rendering()
    end_labels(target, ends)
    paired_to = f", and paired differences to {study.reference}"
    caption = (
        f"Accuracy over all classes seen so far{paired_to if both else ''}. "
        f"{over_draws(study, band=True)}"
    )
    alt = f"Accuracy of {len(methods)} methods over sessions 0 to {last} on {study.dataset}."
    return Picture("curves", "Accuracy over sessions", caption, alt, figure)


def _gains(study: Study, method: str) -> list[Estimate]:
    results = study.results
    draws = results.shared_draws([method, study.reference], study.draws)
    ours = results.session_values(method, "accuracy", draws)
    theirs = results.session_values(study.reference, "accuracy", draws)
    gains = [paired(a, b) for a, b in zip(ours, theirs, strict=False)]
    return gains or [Estimate(float("nan"), float("nan"), 0)]
