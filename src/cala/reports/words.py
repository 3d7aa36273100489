"""Sentences that several parts of a report share."""

from __future__ import annotations

from cala.reports.study import Study
from cala.results import Results

NOT_COVERED = "it does not cover encoders or training seeds."


def over_draws(study: Study, band: bool = False) -> str:
    """What a ± (or a band) in this study means."""
    counts = draw_counts(study.results, study.draws)
    most = max(counts.values(), default=0)
    fewer = [f"{m}: {n}" for m, n in counts.items() if n != most]
    which = "random draws" if study.results.random_draws() else "draws"
    if most < 2:
        name = study.draws[0] if study.draws else "one"
        return f"One draw of the shots ({name}), so there is no interval (n = 1)."
    except_for = f" ({', '.join(fewer)})" if fewer else ""
    mark = "the band is" if band else "± is half"
    return (
        f"Mean of n = {most} {which} of the shots{except_for}; {mark} the 95 % t-interval "
        f"{study.results.covered(study.draws)}; {NOT_COVERED}{sessions(study)}"
    )


def sessions(study: Study) -> str:
    """A sentence on sessions that train an encoder, where there are any."""
    stated = {
        bool(run.config["full_sessions"]) for run in study.runs if "full_sessions" in run.config
    }
    if not stated:
        return ""
    lengths = {frozenset({True}): "the published length", frozenset({False}): "a short length"}
    length = lengths.get(frozenset(stated), "a short length in some runs, the published in others")
    return f" Sessions that train an encoder have {length} (see Time and memory)."


def draw_counts(results: Results, draws: list[str]) -> dict[str, int]:
    """Draws that each method has."""
    return {m: len(results.shared_draws([m], draws)) for m in results.methods}


def one_cell(study: Study, method: str) -> str:
    """Which cell an artifact shows."""
    artifact = study.artifacts[method]
    n = len(artifact["labels"]) if artifact.has("labels") else int(artifact["confusion"].sum())
    return f"{artifact.draw} draw after the last session, n = {n:,} {study.split} images"
