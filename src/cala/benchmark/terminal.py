"""Results as tables in an 80-column terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from cala.benchmark.runner import Results
from cala.benchmark.statistics import Estimate, estimate, paired
from cala.metrics import Summary, summarise

COLUMNS = {
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


def summaries(results: Results, draws: Sequence[str]) -> dict[str, list[Summary]]:
    """Per method, one summary per draw."""
    return {
        title: [summarise(by_draw[name]) for name in draws] for title, by_draw in results.items()
    }


def values(rows: Sequence[Summary], column: str) -> list[float]:
    """One column of a method's summaries, in percent."""
    return [100 * float(getattr(row, column)) for row in rows]


def results_table(results: Results, draws: Sequence[str], title: str) -> Table:
    """Means over draws, with the half width of the 95 % interval below each."""
    table = _table(title)
    for name, rows in summaries(results, draws).items():
        cells = [estimate(values(rows, column)) for column in COLUMNS]
        table.add_row(name, *(_cell(cell, "{:.1f}", "±{:.1f}") for cell in cells))
    return table


def differences_table(
    results: Results, draws: Sequence[str], pairs: Sequence[tuple[str, str]], title: str
) -> Table:
    """Paired differences; ≈ instead of ± marks an interval that includes zero."""
    table = _table(title)
    by_method = summaries(results, draws)
    for name, reference in pairs:
        cells = [
            paired(values(by_method[name], column), values(by_method[reference], column))
            for column in COLUMNS
        ]
        texts = [
            _cell(
                c,
                "{:+.2f}" if abs(c.mean) < 9.995 else "{:+.1f}",
                "±{:.2f}" if c.clear else "≈{:.2f}",
            )
            for c in cells
        ]
        table.add_row(f"{name}\n− {reference}", *texts)
    return table


def as_json(results: Results, draws: Sequence[str]) -> dict[str, dict[str, object]]:
    """Means and half widths per method and column, and every draw's own value."""
    out: dict[str, dict[str, object]] = {}
    for name, rows in summaries(results, draws).items():
        out[name] = {
            field.name: {
                **dataclasses.asdict(estimate(values(rows, field.name))),
                "draws": values(rows, field.name),
            }
            for field in dataclasses.fields(Summary)
        }
    return out


def console() -> Console:
    """80 columns at least, also where the output is no terminal."""
    found = Console()
    return found if found.width >= 80 else Console(width=80)


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in COLUMNS.values():
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _cell(cell: Estimate, mean: str, half: str) -> str:
    below = "" if cell.n < 2 else "\n" + half.format(cell.half)
    return mean.format(cell.mean) + below
