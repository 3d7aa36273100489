"""Tables of what methods reach: main result, differences, sessions, rates, γ, plug and play."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cala.reports.paper_numbers import beside, in_paper, joined, quoted_last_session
from cala.reports.phrases import NOT_COVERED, over_draws
from cala.reports.study import Study
from cala.results import Results
from cala.statistics import Interval
from cala.table import Row, Table, TableCell, difference, mark_best, number, plain, row

_COLUMNS = {
    "last": "last", "avg": "Avg", "base": "base", "novel": "novel", "hm": "HM", "ahm": "AHM",
    "avg_novel": "Avg_novel", "fpr_last": "FPR", "ausuc": "AUSUC", "ncr2": "NCR@2", "ncr5": "NCR@5",
}  # fmt: skip
MEANING = (
    "last: accuracy over all classes after the last session; Avg: mean of all sessions; base, "
    "novel: accuracy on base and on novel images, always against all classes; HM: their harmonic "
    "mean, AHM and Avg_novel: means over sessions 1 to T; FPR: novel images taken for base classes "
    "(lower is better); AUSUC: area under the base/novel trade-off curve; NCR@2, NCR@5: novel "
    "accuracy where base accuracy has fallen by 2 or 5 points. Bold: best mean."
)
_RATES = {
    "fpr": "Novel images taken for base classes (FPR)",
    "fpr_mirror": "Base images taken for novel classes (the mirror of FPR)",
}


def summary_table(study: Study, draws: Sequence[str], name: str, title: str) -> Table:
    """Every method after the last session: means and intervals of all columns, in percent."""
    rows = []
    for method in study.methods:
        n = len(study.results.shared_draws([method], draws))
        cells = (number(study.results.estimate(method, c, draws)) for c in _COLUMNS)
        rows.append(row(method, *cells, plain(n, 0)))
    lower = [1 + list(_COLUMNS).index("fpr_last")]
    rows = mark_best(rows, (i for i in range(1, len(_COLUMNS) + 1) if i not in lower))
    rows = mark_best(rows, lower, lowest=True)
    alone = f"{', '.join(draws)} draw only: one draw has no interval."
    over = over_draws(study) if list(draws) == list(study.draws) else alone
    caption = f"Percent of {study.split} images. {over}"
    return Table(name, title, caption, ["method", *_COLUMNS.values(), "n"], rows, [MEANING])


def difference_table(study: Study) -> Table | None:
    """Every method against the first, paired on the same draws."""
    first, *others = study.methods
    if not others:
        return None
    columns = {k: v for k, v in _COLUMNS.items() if k not in ("ncr2", "ncr5")}
    rows = []
    for method in others:
        n = len(study.results.shared_draws([method, first], study.draws))
        found = (study.results.difference(method, first, c, study.draws) for c in columns)
        rows.append(row(method, *map(difference, found), plain(n, 0)))
    caption = (
        f"Points above {first}, paired on test images and on the n draws that both have; half the "
        "95 % t-interval below each, with ≈ instead of ± where it includes 0: not distinguishable. "
        f"It is {study.results.covered(study.draws)}; {NOT_COVERED}"
    )
    heads = ["method", *columns.values(), "n"]
    return Table("differences", f"Differences to {first}", caption, heads, rows)


def sessions_table(study: Study) -> Table:
    """Accuracy in each session (Table tabminicom), with the CALA paper's rows of that data set."""
    results, draws, sessions = study.results, study.draws, study.sessions
    rows = []
    for method in study.methods:
        cells = [number(found, 2) for found in study.per_session(method, "accuracy")]
        cells.append(number(results.estimate(method, "avg", draws), 2))
        gain = difference(results.difference(study.focus, method, "last", draws))
        rows.append(row(method, *cells, TableCell() if method == study.focus else gain))
    rows = mark_best(rows, range(1, sessions + 3))
    caption = (
        "Accuracy over all classes seen so far in each session, percent. "
        f"{over_draws(study, brief=True)} Δ_last: what {study.focus} gains over the row in the "
        "last session, paired on the same draws and test images."
    )
    columns = ["method", *map(str, range(sessions + 1)), "Avg", "Δ_last"]
    table = Table("sessions", "Accuracy in each session", caption, columns, rows)
    if in_paper("gamma", study.dataset):
        return joined(table, quoted_last_session(sessions))
    return beside(table, "sessions", study.dataset)


def rate_table(study: Study, column: str) -> Table:
    """FPR (Table tabminiFNR) or its mirror in sessions 1 to T; session 0 has no novel classes."""
    sessions = range(1, study.sessions + 1)
    rows = [row(m, *map(number, study.per_session(m, column)[1:])) for m in study.methods]
    rows = mark_best(rows, sessions, lowest=True)
    caption = f"Percent, lower is better. {over_draws(study, brief=True)}"
    table = Table(column, _RATES[column], caption, ["method", *map(str, sessions)], rows)
    return beside(table, column, study.dataset) if column == "fpr" else table


@dataclass(frozen=True)
class GammaPoint:
    """One γ; gain : over γ = 0 in the last session"""

    gamma: float
    last: Interval
    avg: Interval
    gain: Interval


@dataclass(frozen=True)
class GammaSweep:
    """source : how it was measured, in words"""

    method: str
    points: list[GammaPoint]
    source: str


def gamma_sweep(study: Study) -> GammaSweep | None:
    """From runs that vary γ (`cala ablate gamma`), else from the artifact's own draw."""
    return _sweep_of_runs(study) or _sweep_of_artifact(study)


def gamma_table(study: Study, sweep: GammaSweep) -> Table:
    """One row per γ (Table tabcifargamma), and the CALA paper's on the same data set."""
    rows = []
    for point in sweep.points:
        gain = difference(point.gain) if point.gamma else TableCell()
        rows.append(row(f"γ = {point.gamma:g}", number(point.last, 2), number(point.avg, 2), gain))
    caption = f"{sweep.method}, trained once; γ varied at inference. {sweep.source}"
    notes = ["Δ_last is against γ = 0."]
    table = Table("gamma", "γ ablation", caption, ["γ", "last", "Avg", "Δ_last"], rows, notes)
    return beside(table, "gamma", study.dataset)


def _sweep_of_runs(study: Study) -> GammaSweep | None:
    runs = {run.gamma: run for run in study.runs if run.gamma is not None}
    methods = [method for run in runs.values() for method in run.methods]
    if not methods:
        return None
    method = study.focus if study.focus in methods else methods[0]
    results = Results(
        [replace(r, method=str(g)) for g in runs for r in runs[g].methods.get(method, [])]
    )
    draws = results.random_draws() or results.draws
    points = []
    for name in sorted(results.methods, key=float):
        last, avg = (results.estimate(name, c, draws) for c in ("last", "avg"))
        gain = results.difference(name, "0.0", "last", draws)
        points.append(GammaPoint(float(name), last, avg, gain))
    n = max(p.last.n for p in points)
    words = f"Mean of n = {n} draws, ± half the 95 % t-interval {results.covered(draws)}."
    return GammaSweep(method, points, words if n > 1 else "One draw (n = 1), no interval.")


def _sweep_of_artifact(study: Study) -> GammaSweep | None:
    artifact = study.artifacts.get(study.focus)
    if artifact is None or not study.adapter(study.focus):
        return None
    if not artifact.has("gamma", "gamma_accuracy"):
        return None
    accuracy = 100 * artifact["gamma_accuracy"].astype(float)
    points = []
    for gamma, found in zip(artifact["gamma"].tolist(), accuracy, strict=True):
        values = (found[-1], found.mean(), found[-1] - accuracy[0, -1])
        points.append(GammaPoint(gamma, *(Interval(float(v), math.nan, 1) for v in values)))
    words = f"The {artifact.draw} draw alone (n = 1); `cala ablate gamma` gives intervals."
    return GammaSweep(study.focus, points, words)


def plug_table(study: Study) -> Table:
    """Each host, then what adapters add to it (Table tabminibeta), and the CALA paper's hosts."""
    ends = ("hm", "avg_novel")
    results, draws = study.results, study.draws
    on_host: dict[str, list[str]] = {}
    for method in study.methods:
        if host := study.host(method):
            on_host.setdefault(host, []).append(method)
    rows: list[Row] = []
    for host, adapted in on_host.items():
        found = [results.estimate(host, c, draws) for c in ends]
        values = [*study.per_session(host, "accuracy"), *found]
        rows.append(row(host, *(number(value, 2) for value in values)))
        for method in adapted:
            adapter = str(study.adapter(method))
            name = f"+ {adapter}" if method == adapter else f"+ {adapter} ({method})"
            gained = [results.difference(method, host, c, draws) for c in ends]
            gains = [*study.gains(method, host)[1:], *gained]
            rows.append(row(name, TableCell(), *map(difference, gains)))
    caption = (
        "Hosts and what adapters add to them, in points, paired on the same draws and test images "
        f"(≈: not distinguishable, the interval includes 0). {over_draws(study, brief=True)}"
    )
    columns = ["method", *map(str, range(study.sessions + 1)), "HM_last", "Avg_novel"]
    table = Table("plug_and_play", "Plug and play", caption, columns, rows)
    return beside(table, "plug", study.dataset)
