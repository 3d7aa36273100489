"""Results as tables in an 80-column terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from cala.benchmark.wide_table import WideTable
from cala.errors import UnknownNameError
from cala.heads import HEADS
from cala.heads.factory import split_name
from cala.results import Results
from cala.statistics import Estimate

HEADINGS = {
    "last": "last",
    "avg": "avg",
    "base": "base",
    "novel": "novel",
    "hm": "HM",
    "ahm": "AHM",
    "avg_novel": "AvgN",
    "fpr_first": "FPR₁",
    "fpr_last": "FPR_T",
    "ausuc": "AUSUC",
    "ncr2": "NCR2",
    "ncr5": "NCR5",
}


#: What the headings mean, for the line below a table.
LEGEND = (
    "last: accuracy over all classes at the end; avg: mean over sessions; HM: harmonic mean of "
    "base and novel; AHM, AvgN: HM and novel, means over sessions 1 to T; FPR₁, FPR_T: novel "
    "images taken for base, sessions 1 and T; AUSUC: area under the base/novel trade-off curve; "
    "NCR2, NCR5: novel accuracy where base accuracy has fallen by 2 and 5 points"
)


def results_table(results: Results, draws: Sequence[str], title: str) -> WideTable:
    """Means over draws, with the half width of the 95 % interval below each."""
    table = WideTable(title, list(HEADINGS.values()))
    for method in results.methods:
        cells = [results.estimate(method, column, draws) for column in HEADINGS]
        table.rows.append((method, [_cell(cell, "{:.1f}", "±{:.1f}") for cell in cells]))
    return table


def differences_table(
    results: Results, draws: Sequence[str], pairs: Sequence[tuple[str, str]], title: str
) -> WideTable:
    """Paired differences; ≈ instead of ± marks an interval that includes zero.

    The reference stands below each method unless all share it: then `title` should name it.
    """
    table = WideTable(title, list(HEADINGS.values()))
    shared = len({reference for _, reference in pairs}) == 1
    for method, reference in pairs:
        cells = [results.difference(method, reference, column, draws) for column in HEADINGS]
        name = method if shared else f"{method}\n− {reference}"
        table.rows.append((name, [_difference(cell) for cell in cells]))
    return table


def session_notes(results: Results, draws: Sequence[str], full: bool | None) -> list[str]:
    """What a reader must know of methods that train their encoder in sessions.

    full : their sessions had the published length; None if runs may differ in that
    """
    theirs = [m for m in results.methods if _trains(m)]
    if not theirs:
        return []
    lengths = {True: " (published length)", False: " (short; --full-sessions: published length)"}
    length = "" if full is None else lengths[full]
    notes = [f"sessions that train an encoder{length}: {', '.join(theirs)}"]
    fewer = {m: len(results.shared_draws([m], draws)) for m in theirs}
    counts = sorted({n for n in fewer.values() if n < len(draws)})
    by_count = {n: ", ".join(m for m in fewer if fewer[m] == n) for n in counts}
    return [*notes, *(f"{n} of these draws: {names}" for n, names in by_count.items())]


def _trains(method: str) -> bool:
    """Whether a method, called `RUN: METHOD` where runs are compared, trains its encoder."""
    try:
        host, _ = split_name(method.rpartition(": ")[2])
    except UnknownNameError:  # a value of an ablation
        return False
    return HEADS[host].traits.changes_encoder


def console() -> Console:
    """80 columns at least, also where the output is no terminal."""
    found = Console()
    return found if found.width >= 80 else Console(width=80)


def _difference(cell: Estimate) -> str:
    mean = "{:+.2f}" if abs(cell.mean) < 9.995 else "{:+.1f}"
    return _cell(cell, mean, "±{:.2f}" if cell.clear else "≈{:.2f}")


def _cell(cell: Estimate, mean: str, half: str) -> str:
    if cell.n == 0:
        return "–"
    unknown = cell.n < 2 or (cell.half != cell.half and cell.mean == cell.mean)
    below = "" if unknown else "\n" + half.format(cell.half)
    return mean.format(cell.mean) + below
