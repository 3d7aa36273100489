"""A table as data, and as Markdown, CSV and LaTeX; pages and terminals render it themselves."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cala.files import shown

if TYPE_CHECKING:  # `cala --help` imports this file, and must not import NumPy
    from cala.statistics import Interval

_NOTHING = "–"
#: Stands beside rows that are printed in a paper, not measured here.
_QUOTED = "quoted"
NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?(e[-+]?[0-9]+)?")
#: Commands and options in captions and notes.
CODE = re.compile(r"`([-\w ,+]+)`")
LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "γ": r"$\gamma$", "β": r"$\beta$", "δ": r"$\delta$", "Δ": r"$\Delta$", "−": "$-$",
    "±": r"$\pm$", "×": r"$\times$", "→": r"$\to$", "–": "--", "…": r"\dots{}", "≥": r"$\geq$",
    "≈": r"$\approx$", "◇": r"$\diamond$", "<": r"\textless{}", ">": r"\textgreater{}", "\n": " ",
    "₁": "$_1$",
})  # fmt: skip


@dataclass(frozen=True)
class TableCell:
    """One number, or a text.

    value, half : at full precision; None for a text or where there is nothing
    digits, signed : how it is written
    best, unclear : the best of its column; a difference whose interval includes zero
    """

    text: str = ""
    value: float | None = None
    half: float | None = None
    digits: int = 1
    signed: bool = False
    best: bool = False
    unclear: bool = False

    @property
    def mean_text(self) -> str:
        if self.value is None:
            return self.text or _NOTHING
        sign = "+" if self.signed else ""
        return f"{self.value:{sign}.{self.digits}f}".replace("-", "−")

    @property
    def half_text(self) -> str:
        return "" if self.half is None else f"{self.half:.{self.digits}f}"

    @property
    def mark(self) -> str:
        """The sign before the half width of an interval."""
        return "≈" if self.unclear else "±"


@dataclass(frozen=True)
class Row:
    """quoted : printed in the CALA paper, not measured here"""

    cells: list[TableCell]
    quoted: bool = False


@dataclass(frozen=True)
class Table:
    """name : of its files; columns : the first is the row's name; notes : below the table"""

    name: str
    title: str
    caption: str
    columns: list[str]
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def word_columns(self) -> set[int]:
        """Columns of words, which are set to the left."""
        found = set()
        for i in range(len(self.columns)):
            cells = [row.cells[i] for row in self.rows]
            if any(c.text for c in cells) and not any(c.value is not None for c in cells):
                found.add(i)
        return found


def row(*cells: TableCell | str, quoted: bool = False) -> Row:
    """A row of numbers and words."""
    return Row([TableCell(text=c) if isinstance(c, str) else c for c in cells], quoted)


def number(found: Interval, digits: int = 1) -> TableCell:
    """A mean with the half width of its interval."""
    if found.n == 0 or found.mean != found.mean:
        return TableCell()
    half = None if found.half != found.half else found.half
    return TableCell(value=found.mean, half=half, digits=digits)


def difference(found: Interval, digits: int = 2) -> TableCell:
    """A paired difference, marked where its interval includes zero."""
    cell = number(found, digits)
    unclear = cell.half is not None and not found.clear
    return replace(cell, signed=True, unclear=unclear)


def plain(value: float | None, digits: int = 2, signed: bool = False) -> TableCell:
    """A number without an interval."""
    if value is None or value != value:
        return TableCell()
    return TableCell(value=float(value), digits=digits, signed=signed)


def mark_best(rows: list[Row], columns: Iterable[int], lowest: bool = False) -> list[Row]:
    """The same rows with the best measured means of some columns marked (none if only one).

    Means that are written alike are equally good.
    """
    made = [list(r.cells) for r in rows]
    for column in columns:
        own = [i for i, r in enumerate(rows) if not r.quoted and made[i][column].value is not None]
        if len(own) < 2:
            continue
        best = (min if lowest else max)(own, key=lambda i: made[i][column].value or 0.0)
        for i in own:
            if made[i][column].mean_text == made[best][column].mean_text:
                made[i][column] = replace(made[i][column], best=True)
    return [Row(cells, r.quoted) for cells, r in zip(made, rows, strict=True)]


def markdown(table: Table) -> str:
    """A pipe table below its caption."""
    title = f"**{_html(table.title)}.** " if table.title else ""
    lines = [title + _html(table.caption), ""]
    lines += ["| " + " | ".join(_bar(_html(c)) for c in table.columns) + " |"]
    lines += ["|---" + "|---:" * (len(table.columns) - 1) + "|"]
    for line in table.rows:
        cells = [_bar(_markdown_cell(cell)) for cell in line.cells]
        if line.quoted:
            cells[0] = f"*{cells[0]} ({_QUOTED})*"
        lines.append("| " + " | ".join(cells) + " |")
    lines += [f"\n{_html(note)}" for note in table.notes]
    return "\n".join(lines) + "\n"


def as_csv(table: Table) -> str:
    """Full precision; a column with intervals is followed by one of their half widths."""
    halves = [
        any(line.cells[i].half is not None for line in table.rows)
        for i in range(len(table.columns))
    ]
    head = []
    for column, wide in zip(table.columns, halves, strict=True):
        column = column.replace("\n", " ")
        head += [column, f"{column} ±"] if wide else [column]
    rows = [[*head, "source"]]
    for line in table.rows:
        values: list[str] = []
        for cell, wide in zip(line.cells, halves, strict=True):
            text = cell.text.replace("\n", " ")
            values.append(text if cell.value is None else f"{cell.value:.6g}")
            if wide:
                values.append("" if cell.half is None else f"{cell.half:.6g}")
        rows.append([*values, _QUOTED if line.quoted else "measured"])
    return csv_text(rows)


def csv_text(rows: Iterable[Sequence[str]]) -> str:
    r"""Rows of cells as CSV.

    Names come from anyone, and a spreadsheet runs a cell that begins like a formula: such a cell
    gets an apostrophe. Control characters and bytes that are no text are escaped.

    >>> csv_text([["=1+1", "-0.5", "two\nlines", "a, b"]])
    '\'=1+1,-0.5,two\\nlines,"a, b"\n'
    """
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(map(_csv_cell, row) for row in rows)
    return out.getvalue()


def _csv_cell(text: str) -> str:
    plain = shown(text)
    return f"'{plain}" if plain[:1] in tuple("=+-@") and not NUMBER.fullmatch(plain) else plain


def latex(table: Table) -> str:
    """A booktabs table."""
    head = " & ".join(column.translate(LATEX) for column in table.columns) + r" \\"
    rows: list[str] = []
    before = False
    for line in table.rows:
        if line.quoted != before and rows:
            rows.append(r"\midrule")
        before = line.quoted
        cells = [_latex_cell(cell) for cell in line.cells]
        if line.quoted:
            cells[0] = rf"\textit{{{cells[0]}}} ({_QUOTED})"
        rows.append(" & ".join(cells) + r" \\")
    body = "\n".join([r"\toprule", head, r"\midrule", *rows, r"\bottomrule"])
    words = " ".join([table.caption, *table.notes]).translate(LATEX)
    caption = CODE.sub(r"\\texttt{\1}", words)
    return (
        f"\\begin{{table}}\n\\centering\n\\caption{{{caption}}}\n\\label{{tab:{table.name}}}\n"
        f"\\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}\n{body}\n"
        "\\end{tabular}\n\\end{table}\n"
    )


def _markdown_cell(cell: TableCell) -> str:
    """Words without any meaning in Markdown, numbers with their interval."""
    mean = _html("".join(f"\\{c}" if c in "\\`*[" else c for c in cell.mean_text))
    mean = f"**{mean}**" if cell.best else mean
    return f"{mean} {cell.mark} {cell.half_text}" if cell.half_text else mean


def _latex_cell(cell: TableCell) -> str:
    mean = cell.mean_text.translate(LATEX)
    mean = rf"\textbf{{{mean}}}" if cell.best else mean
    if not cell.half_text:
        return mean
    return f"{mean} {{\\scriptsize {cell.mark.translate(LATEX)} {cell.half_text}}}"


def _html(words: str) -> str:
    """Markdown passes tags on: a name with one is text all the same."""
    return html.escape(words, quote=False).replace("\n", " ")


def _bar(words: str) -> str:
    return words.replace("|", "\\|")
