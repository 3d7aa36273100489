"""Tables in a terminal: always whole, in several blocks of columns where they are too wide."""

from __future__ import annotations

import itertools
import textwrap

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from cala.table import Table, TableCell

#: Names longer than this are broken into lines, so that at least one column fits beside them.
_LONGEST_NAME = 26


def console() -> Console:
    """At least 80 columns, also if the output is not a terminal."""
    found = Console()
    return found if found.width >= 80 else Console(width=80)


class TerminalTable:
    """A table that rich prints: its caption, then rows with half widths below their means.

    Names and cells are text, never markup.
    """

    def __init__(self, table: Table) -> None:
        self.caption = table.caption
        names = [_broken(row.cells[0].text) for row in table.rows]
        self.columns = [["", *names]]
        for i, heading in enumerate(table.columns[1:], 1):
            self.columns.append([heading, *(_text(row.cells[i]) for row in table.rows)])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.caption)
        for i, block in enumerate(self.blocks(options.max_width)):
            if i:
                yield Text("")
            yield self._block(block)

    def blocks(self, width: int) -> list[range]:
        """The columns of each block: as few blocks as fit, all of about the same size."""
        count = len(self.columns) - 1
        for parts in range(1, count):
            ends = [1 + round(count * k / parts) for k in range(parts + 1)]
            found = [range(a, b) for a, b in itertools.pairwise(ends)]
            if all(self._width(block) <= width for block in found):
                return found
        return [range(k, k + 1) for k in range(1, count + 1)]

    def _width(self, block: range) -> int:
        widths = [
            max(cell_len(line) for text in self.columns[k] for line in text.split("\n"))
            for k in (0, *block)
        ]
        return sum(widths) + len(block)

    def _block(self, block: range) -> RichTable:
        table = RichTable(box=None, padding=(0, 1, 0, 0), pad_edge=False)
        for k in (0, *block):
            heading = Text(self.columns[k][0])
            table.add_column(heading, justify="right" if k else "left", no_wrap=True)
        for cells in list(zip(*(self.columns[k] for k in (0, *block)), strict=True))[1:]:
            table.add_row(*map(Text, cells))
        return table


def _text(cell: TableCell) -> str:
    half = f"\n{cell.mark}{cell.half_text}" if cell.half_text else ""
    return cell.mean_text.replace("−", "-") + half


def _broken(name: str) -> str:
    """A long name in lines, broken at hyphens and spaces where it has any."""
    return "\n".join(p for line in name.split("\n") for p in textwrap.wrap(line, _LONGEST_NAME))
