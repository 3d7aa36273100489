"""Tables of a run as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from cala.benchmark.terminal import HEADINGS
from cala.results import COLUMNS, Results
from cala.statistics import Estimate

LATEX = str.maketrans({"_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "₁": "$_1$", "±": r"$\pm$"})


def markdown(results: Results, draws: Sequence[str], caption: str) -> str:
    """One row per method, mean ± half width of the 95 % interval, in percent."""
    lines = [caption, "", "| method | " + " | ".join(HEADINGS.values()) + " |"]
    lines.append("|---" * (len(HEADINGS) + 1) + "|")
    for method in results.methods:
        cells = [_text(results.estimate(method, c, draws), " ± ") for c in HEADINGS]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def latex(results: Results, draws: Sequence[str], caption: str) -> str:
    """A booktabs table."""
    rows = []
    for method in results.methods:
        cells = [
            _text(results.estimate(method, c, draws), r" {\scriptsize $\pm$ ") for c in HEADINGS
        ]
        cells = [cell + ("}" if "scriptsize" in cell else "") for cell in cells]
        rows.append(f"{method.translate(LATEX)} & " + " & ".join(cells) + r" \\")
    head = " & ".join(["method", *(h.translate(LATEX) for h in HEADINGS.values())]) + r" \\"
    body = "\n".join([r"\toprule", head, r"\midrule", *rows, r"\bottomrule"])
    columns = "l" + "r" * len(HEADINGS)
    return (
        f"\\begin{{table}}\n\\centering\n\\caption{{{caption.translate(LATEX)}}}\n"
        f"\\begin{{tabular}}{{{columns}}}\n{body}\n\\end{{tabular}}\n\\end{{table}}\n"
    )


def as_csv(results: Results) -> str:
    """Every column for every method and draw, seeds averaged: what a spreadsheet wants."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["method", "draw", *COLUMNS])
    for method in results.methods:
        for draw in results.shared_draws([method]):
            values = [results.values(method, column, [draw])[0] for column in COLUMNS]
            writer.writerow([method, draw, *(f"{v:.4f}" if v == v else "" for v in values)])
    return out.getvalue()


def _text(cell: Estimate, between: str) -> str:
    if cell.n == 0 or cell.mean != cell.mean:
        return "–"
    return f"{cell.mean:.1f}" + ("" if cell.half != cell.half else f"{between}{cell.half:.1f}")
