"""Tables of a run's results: for its folder, and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from cala.benchmark.config import changes_encoder
from cala.errors import UnknownNameError
from cala.results import COLUMNS, Results
from cala.table import Table, csv_text, difference, number, row

HEADINGS = {
    "last": "last", "avg": "avg", "base": "base", "novel": "novel", "hm": "HM", "ahm": "AHM",
    "avg_novel": "AvgN", "fpr_first": "FPR₁", "fpr_last": "FPR_T", "ausuc": "AUSUC",
    "ncr2": "NCR2", "ncr5": "NCR5",
}  # fmt: skip
#: What the headings mean, for the line below a table.
LEGEND = (
    "last: accuracy over all classes at the end; avg: mean over sessions; HM: harmonic mean of "
    "base and novel; AHM, AvgN: HM and novel, means over sessions 1 to T; FPR₁, FPR_T: novel "
    "images taken for base, sessions 1 and T; AUSUC: area under the base/novel trade-off curve; "
    "NCR2, NCR5: novel accuracy where base accuracy has fallen by 2 and 5 points"
)


def results_table(results: Results, draws: Sequence[str], caption: str) -> Table:
    """One row per method: means over draws with half widths of 95 % intervals, in percent."""
    rows = [
        row(method, *(number(results.estimate(method, column, draws)) for column in HEADINGS))
        for method in results.methods
    ]
    return Table("results", "", caption, ["method", *HEADINGS.values()], rows)


def differences_table(
    results: Results, draws: Sequence[str], pairs: Sequence[tuple[str, str]], caption: str
) -> Table:
    """Paired differences, one row per (method, reference).

    The reference stands below each method unless all share it: then `caption` should name it.
    """
    shared = len({reference for _, reference in pairs}) == 1
    rows = []
    for method, reference in pairs:
        found = (results.difference(method, reference, column, draws) for column in HEADINGS)
        rows.append(row(method if shared else f"{method}\n− {reference}", *map(difference, found)))
    return Table("differences", "", caption, ["method", *HEADINGS.values()], rows)


def draws_csv(results: Results) -> str:
    """Every column for every method and draw, seeds averaged: for a spreadsheet."""
    rows = [["method", "draw", *COLUMNS]]
    for method in results.methods:
        for draw in results.shared_draws([method]):
            values = [results.values(method, column, [draw])[0] for column in COLUMNS]
            rows.append([method, draw, *(f"{v:.4f}" if v == v else "" for v in values)])
    return csv_text(rows)


def session_notes(results: Results, draws: Sequence[str], full: bool | None) -> list[str]:
    """What a reader must know of methods that train their encoder, or that have fewer draws.

    full : sessions had the published length; None if runs may differ in that
    """
    theirs = [m for m in results.methods if _trains(m)]
    lengths = {True: " (published length)", False: " (short; --full-sessions: published length)"}
    length = "" if full is None else lengths[full]
    notes = [f"sessions that train an encoder{length}: {', '.join(theirs)}"] if theirs else []
    fewer = {m: len(results.shared_draws([m], draws)) for m in results.methods}
    counts = sorted({n for n in fewer.values() if n < len(draws)})
    by_count = {n: ", ".join(m for m in fewer if fewer[m] == n) for n in counts}
    return [*notes, *(f"{n} of these draws: {names}" for n, names in by_count.items())]


def _trains(method: str) -> bool:
    """Whether a method, called `RUN: METHOD` where runs are compared, trains its encoder."""
    try:
        return changes_encoder(method.rpartition(": ")[2])
    except UnknownNameError:  # a value of an ablation
        return False
