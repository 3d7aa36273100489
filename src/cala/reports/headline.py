"""The main result in one sentence."""

from __future__ import annotations

from cala.reports.study import Study


def headline(study: Study) -> str:
    """What the best method reaches, and how far it is above the first on the same draws."""
    results, draws = study.results, study.draws
    last = {m: results.estimate(m, "last", draws) for m in study.methods}
    best = max(last, key=lambda m: (last[m].mean == last[m].mean, last[m].mean))
    found, first = last[best], study.reference
    novel = study.n_classes - study.n_base
    half = f" ± {found.half:.1f}" if found.half == found.half else ""
    start = (
        f"On {study.dataset}, after {novel} novel class{'es' * (novel > 1)} joined "
        f"{study.n_base} known one{'s' * (study.n_base > 1)}, "
        f"{best} recognises {found.mean:.1f}{half} % of the {study.split} images of all "
        f"{study.n_classes} classes"
    )
    if len(study.methods) == 1:
        return f"{start}{_novel(study, best)}."
    if best == first:
        return f"{start}; no other method is above it{_novel(study, best)}."
    gain = results.difference(best, first, "last", draws)
    if gain.n == 0:
        return f"{start}; it shares no draw with {first}."
    over = f" ± {gain.half:.1f}" if gain.half == gain.half else ""
    unsure = gain.half == gain.half and not gain.clear
    doubt = " (the interval includes 0)" if unsure else ""
    count = f"the same {gain.n} draws" if gain.n > 1 else "one draw"
    return (
        f"{start}, {gain.mean:.1f}{over} points more than {first} on {count}{doubt}"
        f"{_novel(study, best, first)}."
    )


def _novel(study: Study, method: str, first: str | None = None) -> str:
    value = study.results.estimate(method, "novel", study.draws).mean
    if value != value:
        return ""
    against = study.results.estimate(first, "novel", study.draws).mean if first else float("nan")
    tail = f" against {against:.1f} %" if against == against else ""
    return f"; of the novel images {value:.1f} %{tail}"
