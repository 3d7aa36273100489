"""γ at inference (Table tabcifargamma)."""

from __future__ import annotations

from dataclasses import dataclass

from cala.reports.quoted import is_quoted_set, quoted
from cala.reports.study import Study
from cala.reports.table import Row, Table, difference, number, plain, text
from cala.statistics import Estimate


@dataclass(frozen=True)
class GammaPoint:
    """One γ; gain : over γ = 0 in the last session"""

    gamma: float
    last: Estimate
    avg: Estimate
    gain: Estimate


@dataclass(frozen=True)
class GammaSweep:
    """source : how it was measured, in words"""

    method: str
    points: list[GammaPoint]
    source: str


def gamma_sweep(study: Study) -> GammaSweep | None:
    """From runs that vary γ (`cala ablate gamma`), else from the artifact's own draw."""
    return _from_runs(study) or _from_artifact(study)


def gamma_table(study: Study, sweep: GammaSweep) -> Table:
    """One row per γ, and the paper's where it is about the same data set."""
    rows = [
        Row(
            [
                text(f"γ = {p.gamma:g}"),
                number(p.last, 2),
                number(p.avg, 2),
                difference(p.gain) if p.gamma else text(""),
            ]
        )
        for p in sweep.points
    ]
    here = is_quoted_set("gamma", study.dataset)
    rows += [
        Row(
            [
                text(f"γ = {r['gamma']}"),
                plain(r["last"]),
                plain(r["avg"]),
                plain(r["delta_last"], signed=True),
            ],
            quoted=True,
        )
        for r in quoted()["gamma"]["rows"]
    ]
    caption = f"{sweep.method}, trained once; γ varied at inference. {sweep.source}"
    about = "the same data set, another encoder" if here else "on CIFAR-100, another data set"
    return Table(
        "gamma",
        "γ ablation",
        caption,
        ["γ", "last", "Avg", "Δ_last"],
        rows,
        [f"Quoted rows: the paper's Table 3 ({about}). Δ_last is against γ = 0."],
    )


def _from_runs(study: Study) -> GammaSweep | None:
    methods = list(dict.fromkeys(m for m, _ in study.gammas))
    if not methods:
        return None
    method = study.focus if study.focus in methods else methods[0]
    names = {
        g: n for (m, g), n in sorted(study.gammas.items(), key=lambda x: x[0][1]) if m == method
    }
    results = study.gamma_results
    draws = results.random_draws() or results.draws
    zero = names.get(0.0)
    points = []
    for gamma, name in names.items():
        last, avg = (results.estimate(name, c, draws) for c in ("last", "avg"))
        nothing = Estimate(float("nan"), float("nan"), 0)
        gain = results.difference(name, zero, "last", draws) if zero else nothing
        points.append(GammaPoint(gamma, last, avg, gain))
    n = max(p.last.n for p in points)
    words = f"Mean of n = {n} draws, ± half the 95 % t-interval {results.covered(draws)}."
    return GammaSweep(method, points, words if n > 1 else "One draw (n = 1), no interval.")


def _from_artifact(study: Study) -> GammaSweep | None:
    artifact = study.artifacts.get(study.focus)
    if artifact is None or not artifact.has("gamma", "gamma_accuracy"):
        return None
    if not study.adapter(study.focus):
        return None
    accuracy = 100 * artifact["gamma_accuracy"].astype(float)
    points = []
    for gamma, row in zip(artifact["gamma"].tolist(), accuracy, strict=True):
        values = (row[-1], row.mean(), row[-1] - accuracy[0, -1])
        points.append(GammaPoint(gamma, *(Estimate(float(v), float("nan"), 1) for v in values)))
    words = (
        f"The {artifact.draw} draw alone (n = 1), no interval; `cala ablate gamma` gives intervals."
    )
    return GammaSweep(study.focus, points, words)
