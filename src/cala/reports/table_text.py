"""A table as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import html
import io

from cala.reports.quoted import MARK
from cala.reports.table import Cell, Table

_LATEX = {
    "\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "γ": r"$\gamma$", "β": r"$\beta$", "δ": r"$\delta$", "Δ": r"$\Delta$", "−": "$-$",
    "±": r"$\pm$", "×": r"$\times$", "→": r"$\to$", "–": "--", "…": r"\dots{}", "≥": r"$\geq$",
    "≈": r"$\approx$", "◇": r"$\diamond$", "<": r"\textless{}", ">": r"\textgreater{}", "\n": " ",
}  # fmt: skip
LATEX = str.maketrans(_LATEX)


def markdown(table: Table) -> str:
    """A pipe table below its caption."""
    lines = [f"**{_html(table.title)}.** {_html(table.caption)}", ""]
    lines += ["| " + " | ".join(_bar(_html(c)) for c in table.columns) + " |"]
    lines += ["|---" + "|---:" * (len(table.columns) - 1) + "|"]
    for row in table.rows:
        cells = [_bar(_words(cell)) for cell in row.cells]
        if row.quoted:
            cells = [f"*{cells[0]} ({MARK})*", *cells[1:]]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [f"\n{_html(note)}" for note in table.notes]
    return "\n".join(lines) + "\n"


def as_csv(table: Table) -> str:
    """Full precision; a column with intervals is followed by one of their half widths."""
    halves = [
        any(row.cells[i].half is not None for row in table.rows) for i in range(len(table.columns))
    ]
    head = []
    for column, wide in zip(table.columns, halves, strict=True):
        head += [column, f"{column} ±"] if wide else [column]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*head, "source"])
    for row in table.rows:
        values: list[str] = []
        for cell, wide in zip(row.cells, halves, strict=True):
            values.append(cell.text if cell.value is None else f"{cell.value:.6g}")
            if wide:
                values.append("" if cell.half is None else f"{cell.half:.6g}")
        writer.writerow([*values, MARK if row.quoted else "measured"])
    return out.getvalue()


def latex(table: Table) -> str:
    """A booktabs table."""
    head = " & ".join(column.translate(LATEX) for column in table.columns) + r" \\"
    rows: list[str] = []
    before = False
    for row in table.rows:
        if row.quoted != before and rows:
            rows.append(r"\midrule")
        before = row.quoted
        cells = [_latex(cell) for cell in row.cells]
        if row.quoted:
            cells[0] = rf"\textit{{{cells[0]}}} ({MARK})"
        rows.append(" & ".join(cells) + r" \\")
    body = "\n".join([r"\toprule", head, r"\midrule", *rows, r"\bottomrule"])
    caption = " ".join([table.caption, *table.notes]).translate(LATEX)
    return (
        f"\\begin{{table}}\n\\centering\n\\caption{{{caption}}}\n\\label{{tab:{table.name}}}\n"
        f"\\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}\n{body}\n"
        "\\end{tabular}\n\\end{table}\n"
    )


def _words(cell: Cell) -> str:
    mean = _plain(cell.mean_text)
    mean = f"**{mean}**" if cell.best else mean
    return f"{mean} {'≈' if cell.unclear else '±'} {cell.half_text}" if cell.half_text else mean


def _latex(cell: Cell) -> str:
    mean = cell.mean_text.translate(LATEX)
    mean = rf"\textbf{{{mean}}}" if cell.best else mean
    sign = r"\approx" if cell.unclear else r"\pm"
    return f"{mean} {{\\scriptsize ${sign}$ {cell.half_text}}}" if cell.half_text else mean


def _html(words: str) -> str:
    """Markdown passes tags on: a name with one is text all the same."""
    return html.escape(words, quote=False).replace("\n", " ")


def _plain(words: str) -> str:
    """A cell's words without any meaning in Markdown."""
    return _html("".join(f"\\{c}" if c in "\\`*[" else c for c in words))


def _bar(words: str) -> str:
    return words.replace("|", "\\|")
