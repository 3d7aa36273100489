"""The main result in one sentence.

Which methods it speaks of is fixed before any number is known: the last method listed, against the
first. So test images choose nothing here either, and a loss is said like a gain.
"""

from __future__ import annotations

from cala.reports.study import Study
from cala.statistics import Estimate


def headline(study: Study) -> str:
    """What the last method reaches, and its difference to the first on the same draws."""
    results, draws = study.results, study.draws
    method, first = study.methods[-1], study.reference
    found = results.estimate(method, "last", draws)
    novel = study.n_classes - study.n_base
    half = f" ± {found.half:.1f}" if found.half == found.half else ""
    start = (
        f"On {study.dataset}, after {novel} novel class{'es' * (novel != 1)} joined "
        f"{study.n_base} base class{'es' * (study.n_base != 1)}, "
        f"{method} recognises {found.mean:.1f}{half} % of the {study.split} images of all "
        f"{study.n_classes} classes"
    )
    if method == first:
        return f"{start}{_novel(study, method)}.{_fallen(study, [method])}"
    gain = results.difference(method, first, "last", draws)
    if gain.n == 0:
        return f"{start}; it shares no draw with {first}.{_fallen(study, [method])}"
    return (
        f"{start}, {_difference(gain, first)}{_novel(study, method, first)}."
        f"{_fallen(study, [first, method])}"
    )


def _difference(gain: Estimate, first: str) -> str:
    """More, less, or not distinguishable, with the number in every case."""
    over = "and test images" if gain.groups else "(± over draws alone, not test images)"
    count = f"the same {gain.n} draws {over}" if gain.n > 1 else "one draw, which has no interval"
    half = f" ± {gain.half:.1f}" if gain.half == gain.half else ""
    if gain.n > 1 and not gain.clear:
        size = f"{gain.mean:+.1f}{half} points".replace("-", "−")
        return f"not distinguishable from {first} ({size}) on {count}"
    if gain.mean == 0:
        return f"as many as {first} on {count}"
    word = "more" if gain.mean > 0 else "less"
    return f"{abs(gain.mean):.1f}{half} points {word} than {first} on {count}"


def _novel(study: Study, method: str, first: str | None = None) -> str:
    both = [method] if first is None else [method, first]
    draws = study.results.shared_draws(both, study.draws)
    value = study.results.estimate(method, "novel", draws).mean
    if value != value:
        return ""
    against = study.results.estimate(first, "novel", draws).mean if first else float("nan")
    tail = f" against {against:.1f} %" if against == against else ""
    return f"; of the novel images {value:.1f} %{tail}"


def _fallen(study: Study, methods: list[str]) -> str:
    """Which of the methods were less than their name says, because the data allowed no more."""
    words = ""
    for method in methods:
        artifact = study.artifacts.get(method)
        if artifact is None:
            continue
        if study.adapter(method) and artifact.has("beta") and not artifact["beta"].any():
            words += f" The adapter of {method} shifts nothing here (β = 0)."
        elif artifact.meta.get("fallback"):
            words += (
                f" {method} fell back: its data could not teach a class-aware adapter, so it is LA "
                "here, one shift for all novel classes."
            )
    return words
