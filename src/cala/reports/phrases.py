"""Sentences of a report: the headline, and what intervals and single cells mean.

Which methods the headline speaks of is fixed before any number is known: the last method listed,
against the first. So test images choose nothing here either, and a loss is reported like a gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from cala.files import counted
from cala.reports.study import Study
from cala.statistics import Interval

NOT_COVERED = "it does not cover encoders or training seeds."
SHIFTS = {
    "la": "one shift of all novel logits",
    "cala": "a shift of each novel class's logit, from its similarity to the base classes",
    "cala-plus": "a shift of each novel class's logit, from its similarity to the base classes and "
    "the tightness and number of its shots",
}


def explained(study: Study) -> str:
    """Which method the figures of a single method show, and what its adapter does."""
    adapter = study.adapter(study.focus)
    said = f"Figures of a single method show {study.focus}"
    if adapter is None:
        return f"{said}, which has no adapter."
    learned = f" ({SHIFTS.get(adapter)}, learned before any novel class came)"
    return f"{said}, before and after its adapter{learned if adapter in SHIFTS else ''}."


def headline(study: Study) -> str:
    """What the last method reaches, and its difference to the first on the same draws."""
    results, draws = study.results, study.draws
    method, first = study.methods[-1], study.reference
    found = results.estimate(method, "last", draws)
    novel = counted(study.n_classes - study.n_base, "novel class")
    half = f" ± {found.half:.1f}" if found.half == found.half else ""
    start = (
        f"On {study.dataset}, after {novel} joined {counted(study.n_base, 'base class')}, "
        f"{method} recognises {found.mean:.1f}{half} % of the {study.split} images of all "
        f"{study.n_classes} classes"
    )
    gain = results.difference(method, first, "last", draws)
    if method == first:
        end = _novel(study, [method])
    elif gain.n == 0:
        end = f"; it shares no draw with {first}"
    else:
        end = f", {_difference(gain, first)}{_novel(study, [method, first])}"
    return f"{start}{end}.{_fallen(study, dict.fromkeys([first, method]))}"


def _difference(gain: Interval, first: str) -> str:
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


def _novel(study: Study, methods: list[str]) -> str:
    draws = study.results.shared_draws(methods, study.draws)
    found = [study.results.estimate(m, "novel", draws).mean for m in methods]
    if any(map(math.isnan, found)):
        return ""
    return "; of the novel images " + " against ".join(f"{value:.1f} %" for value in found)


def _fallen(study: Study, methods: Iterable[str]) -> str:
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
                f" {method} fell back to LA, one shift for all novel classes: its data could not "
                "teach a class-aware adapter."
            )
    return words


def over_draws(study: Study, band: bool = False, brief: bool = False) -> str:
    """What a ± (or a band) in this study means.

    brief : refer to the main result for what the interval covers
    """
    results = study.results
    counts = {m: len(results.shared_draws([m], study.draws)) for m in results.methods}
    most = max(counts.values(), default=0)
    fewer = [f"{m}: {n}" for m, n in counts.items() if n != most]
    which = "random draws" if results.random_draws() else "draws"
    if most < 2:
        name = study.draws[0] if study.draws else "one"
        return f"One draw of the shots ({name}), so there is no interval (n = 1)."
    except_for = f" ({', '.join(fewer)})" if fewer else ""
    mark = "the band is" if band else "± is half"
    start = f"Mean of n = {most} {which} of the shots{except_for}; {mark} the 95 %"
    if brief:
        return f"{start} interval, as in the main result."
    covered = results.covered(study.draws)
    return f"{start} t-interval {covered}; {NOT_COVERED}{session_length(study)}"


def session_length(study: Study) -> str:
    """A sentence on sessions that train an encoder, where there are any."""
    stated = [run.config["full_sessions"] for run in study.runs if "full_sessions" in run.config]
    if not stated:
        return ""
    length = "a short length in some runs, the published in others"
    if all(stated) or not any(stated):
        length = "the published length" if all(stated) else "a short length"
    return f" Sessions that train an encoder have {length} (see Time and memory)."


def one_cell(study: Study, method: str) -> str:
    """Which cell an artifact shows."""
    artifact = study.artifacts[method]
    n = len(artifact["labels"]) if artifact.has("labels") else int(artifact["confusion"].sum())
    return f"{artifact.draw} draw after the last session, n = {n:,} {study.split} images"
