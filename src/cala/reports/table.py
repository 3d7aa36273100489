"""A table as data, before it becomes HTML, Markdown, CSV or LaTeX."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cala.statistics import Estimate

NOTHING = "–"


@dataclass(frozen=True)
class Cell:
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
            return self.text or NOTHING
        sign = "+" if self.signed else ""
        return f"{self.value:{sign}.{self.digits}f}".replace("-", "−")

    @property
    def half_text(self) -> str:
        return "" if self.half is None else f"{self.half:.{self.digits}f}"


@dataclass(frozen=True)
class Row:
    """quoted : printed in the paper, not measured here"""

    cells: list[Cell]
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


def number(found: Estimate, digits: int = 1) -> Cell:
    """A mean with the half width of its interval."""
    if found.n == 0 or found.mean != found.mean:
        return Cell()
    half = None if found.half != found.half else found.half
    return Cell(value=found.mean, half=half, digits=digits)


def difference(found: Estimate, digits: int = 2) -> Cell:
    """A paired difference, marked where its interval includes zero."""
    cell = number(found, digits)
    if cell.value is None:
        return cell
    unclear = cell.half is not None and not found.clear
    return Cell(value=cell.value, half=cell.half, digits=digits, signed=True, unclear=unclear)


def plain(value: float | None, digits: int = 2, signed: bool = False) -> Cell:
    """A number without an interval."""
    if value is None or value != value:
        return Cell()
    return Cell(value=float(value), digits=digits, signed=signed)


def text(words: object) -> Cell:
    return Cell(text=str(words))


def mark_best(rows: list[Row], column: int, lowest: bool = False) -> list[Row]:
    """The same rows, the best measured means of one column marked (none if there is only one).

    Means that are written alike are equally good.
    """
    found = [
        cell for row in rows if not row.quoted and (cell := row.cells[column]).value is not None
    ]
    if len(found) < 2:
        return rows
    best = (min if lowest else max)(found, key=lambda cell: cell.value or 0.0).mean_text
    return [
        _marked(row, column) if not row.quoted and row.cells[column].mean_text == best else row
        for row in rows
    ]


def _marked(row: Row, column: int) -> Row:
    cells = list(row.cells)
    cells[column] = replace(cells[column], best=True)
    return Row(cells)
