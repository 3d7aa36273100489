"""Results as tables in an 80-column terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

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
}


def results_table(results: Results, draws: Sequence[str], title: str) -> Table:
    """Means over draws, with the half width of the 95 % interval below each."""
    table = _table(title)
    for method in results.methods:
        cells = [results.estimate(method, column, draws) for column in HEADINGS]
        table.add_row(method, *(_cell(cell, "{:.1f}", "±{:.1f}") for cell in cells))
    return table


def differences_table(
    results: Results, draws: Sequence[str], pairs: Sequence[tuple[str, str]], title: str
) -> Table:
    """Paired differences; ≈ instead of ± marks an interval that includes zero."""
    table = _table(title)
    for method, reference in pairs:
        cells = [results.difference(method, reference, column, draws) for column in HEADINGS]
        table.add_row(f"{method}\n− {reference}", *(_difference(cell) for cell in cells))
    return table


def console() -> Console:
    """80 columns at least, also where the output is no terminal."""
    found = Console()
    return found if found.width >= 80 else Console(width=80)


def _difference(cell: Estimate) -> str:
    mean = "{:+.2f}" if abs(cell.mean) < 9.995 else "{:+.1f}"
    return _cell(cell, mean, "±{:.2f}" if cell.clear else "≈{:.2f}")


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in HEADINGS.values():
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _cell(cell: Estimate, mean: str, half: str) -> str:
    if cell.n == 0:
        return "–"
    below = "" if cell.n < 2 else "\n" + half.format(cell.half)
    return mean.format(cell.mean) + below
