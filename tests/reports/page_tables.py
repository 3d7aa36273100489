"""Tables of a page as the numbers that it carries."""

from __future__ import annotations

from html.parser import HTMLParser


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tables, self._table, self._row, self._cell = {}, None, None, None

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag == "table":
            self._table = self.tables.setdefault(values["data-table"], [])
        elif tag == "tr" and self._table is not None:
            self._row = {"quoted": values.get("class") == "quoted", "cells": []}
            self._table.append(self._row)
        elif tag in ("td", "th") and self._row is not None:
            number = values.get("data-value")
            half = values.get("data-half")
            self._cell = [
                "",
                None if number is None else float(number),
                None if half is None else float(half),
            ]
            self._row["cells"].append(self._cell)

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._cell = None
        elif tag == "table":
            self._table = self._row = None

    def handle_data(self, data):
        if self._cell is not None:
            self._cell[0] += data.strip()


def page_tables(html: str) -> dict[str, list[dict]]:
    """name -> rows, the first is the heading; a cell is [text, value, half]."""
    reader = _Reader()
    reader.feed(html)
    return reader.tables
