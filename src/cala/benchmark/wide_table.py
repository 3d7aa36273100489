"""A table that is always whole: where it is too wide, its columns come in several blocks."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

#: Names longer than this are broken into lines, so that at least one column stands beside them.
LONGEST_NAME = 26


@dataclass
class WideTable:
    """Rows of a name and one cell per heading; a cell may have two lines. Prints itself with rich.

    Names and cells are text, never markup.
    """

    title: str
    headings: Sequence[str]
    rows: list[tuple[str, list[str]]] = field(default_factory=list)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.title)
        for i, columns in enumerate(self.blocks(options.max_width)):
            if i:
                yield Text("")
            yield self._block(columns)

    def blocks(self, width: int) -> list[range]:
        """The columns of each block: as few blocks as fit, all of about the same size."""
        count = len(self.headings)
        for parts in range(1, count):
            ends = [round(count * k / parts) for k in range(parts + 1)]
            found = [range(a, b) for a, b in itertools.pairwise(ends)]
            if all(self._width(columns) <= width for columns in found):
                return found
        return [range(k, k + 1) for k in range(count)]

    def _width(self, columns: range) -> int:
        names = max((_widest(_broken(name)) for name, _ in self.rows), default=0)
        return names + sum(1 + max(map(_widest, self._column(k))) for k in columns)

    def _column(self, k: int) -> Iterator[str]:
        yield self.headings[k]
        yield from (cells[k] for _, cells in self.rows)

    def _block(self, columns: range) -> Table:
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("", no_wrap=True)
        for k in columns:
            table.add_column(Text(self.headings[k]), justify="right", no_wrap=True)
        for name, cells in self.rows:
            table.add_row(Text(_broken(name)), *(Text(cells[k]) for k in columns))
        return table


def _broken(name: str) -> str:
    """A long name in lines, broken at hyphens and spaces where it has any."""
    return "\n".join(p for line in name.split("\n") for p in textwrap.wrap(line, LONGEST_NAME))


def _widest(text: str) -> int:
    return max(map(cell_len, text.split("\n")))
