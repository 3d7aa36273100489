"""Numbers printed in the CALA paper, always shown as quoted; its slips are found by computing."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from cala.metrics import average
from cala.table import Row, Table, TableCell, plain, row


@cache
def paper_numbers() -> dict[str, Any]:
    """The paper's tables by what they hold: sessions, fpr, gamma, plug."""
    text = resources.files("cala.reports").joinpath("paper_numbers.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def average_slip(line: dict[str, Any]) -> float | None:
    """The mean of a row's own sessions where the printed average is not that; else None.

    >>> rows = {row["method"]: row for row in paper_numbers()["sessions"]["rows"]}
    >>> average_slip(rows["LA-fscil"]), average_slip(rows["CALA"])
    (67.67, None)
    """
    mean = average(line["sessions"])
    return round(mean, 2) if abs(mean - line["avg"]) > 0.00501 else None


def impossible_rates(line: dict[str, Any], per_session: int) -> list[int]:
    """Sessions whose printed rate is not k/(images), so not that of one run.

    >>> rows = {row["method"]: row for row in paper_numbers()["fpr"]["rows"]}
    >>> impossible_rates(rows["CALA"], 500), impossible_rates(rows["LA-fscil"], 500)
    ([], [2, 3, 4, 5, 6, 7, 8])
    """
    printed = np.array(line["sessions"])
    images = per_session * np.arange(1, len(printed) + 1)
    nearest = 100 * np.round(printed / 100 * images) / images
    return (1 + np.flatnonzero(np.abs(nearest - printed) > 0.00501)).tolist()


def in_paper(part: str, dataset: str) -> bool:
    """Whether the CALA paper's table is about this data set."""
    name = dataset.lower().replace("-", "_").split(":")[0]
    return bool(paper_numbers()[part]["dataset"] == name)


def beside(table: Table, part: str, dataset: str) -> Table:
    """A table with the CALA paper's rows below its own where they are about the same data set."""
    return joined(table, _QUOTED[part]()) if in_paper(part, dataset) else table


def elsewhere(part: str, dataset: str) -> Table | None:
    """The paper's own table where it is about another data set."""
    if in_paper(part, dataset):
        return None
    table = _QUOTED[part]()
    other = "Another data set and encoder: not comparable with the numbers above."
    return replace(table, caption=f"{table.caption} {other}")


def joined(table: Table, theirs: Table) -> Table:
    """A table with quoted rows below its own, matched by the names of their columns."""
    more = []
    for line in theirs.rows:
        cells = dict(zip(theirs.columns[1:], line.cells[1:], strict=True))
        found = (cells.get(column, TableCell()) for column in table.columns[1:])
        more.append(Row([line.cells[0], *found], quoted=True))
    notes = [*table.notes, theirs.caption, *theirs.notes]
    return replace(table, rows=table.rows + more, notes=notes)


def quoted_sessions() -> Table:
    """Accuracy in each session, with notes on averages that are not the mean of their sessions."""
    source = paper_numbers()["sessions"]
    rows, notes = [], []
    for line in source["rows"]:
        name = line["method"] + (" ◇" if line.get("reproduced") else "")
        values = [*map(plain, line["sessions"]), plain(line["avg"])]
        rows.append(row(name, *values, plain(line["delta_last"], signed=True), quoted=True))
        slip = average_slip(line)
        if slip is not None:
            notes.append(
                f"{line['method']}: printed average {line['avg']:.2f}; the mean of its own "
                f"sessions is {slip:.2f}."
            )
        if "note" in line:
            notes.append(f"{line['method']}: {line['note']}.")
    notes.append("◇: reproduced by CALA's authors from open code. Quoted Δ_last is CALA's.")
    columns = ["method", *_sessions(0, source), "Avg", "Δ_last"]
    caption = f"{_quoted(source, 2)}, one run each."
    return Table("quoted_sessions", "The paper's accuracies", caption, columns, rows, notes)


def quoted_last_session(sessions: int) -> Table:
    """The two rows that the CALA paper prints for CIFAR-100, last session and average."""
    source = paper_numbers()["gamma"]
    names = {0: "baseline (γ = 0)", 10: "CALA (γ = 10)"}
    rows = [
        row(names[line["gamma"]], plain(line["last"]), plain(line["avg"]), quoted=True)
        for line in source["rows"]
        if line["gamma"] in names
    ]
    caption = (
        "Quoted: the CALA paper prints two rows for this data set, in its table on γ "
        f"({source['encoder']}, another encoder than here)."
    )
    return Table("quoted_last", "", caption, ["method", str(sessions), "Avg"], rows)


def quoted_rates() -> Table:
    """False-positive rates, with a note on those that cannot come from one run."""
    source = paper_numbers()["fpr"]
    images = source["images_per_session"]
    rows = [row(r["method"], *map(plain, r["sessions"]), quoted=True) for r in source["rows"]]
    odd = "; ".join(
        f"{r['method']} (sessions {', '.join(map(str, wrong))})"
        for r in source["rows"]
        if (wrong := impossible_rates(r, images))
    )
    note = (
        f"Printed rates that are not a whole number of {images} images per session, so not of "
        f"one run: {odd}."
    )
    columns = ["method", *_sessions(1, source)]
    caption = f"{_quoted(source, 1)}, percent."
    return Table("quoted_fpr", "The paper's false-positive rates", caption, columns, rows, [note])


def quoted_gamma() -> Table:
    """γ at inference."""
    source = paper_numbers()["gamma"]
    rows = []
    for line in source["rows"]:
        cells = plain(line["last"]), plain(line["avg"]), plain(line["delta_last"], signed=True)
        rows.append(row(f"γ = {line['gamma']}", *cells, quoted=True))
    caption = f"{_quoted(source, 3)}, one run each."
    columns = ["γ", "last", "Avg", "Δ_last"]
    return Table("quoted_gamma", "The paper's γ ablation", caption, columns, rows)


def quoted_plug() -> Table:
    """Hosts, and what CALA adds to them."""
    source = paper_numbers()["plug"]
    rows = []
    for line in source["rows"]:
        host, gain = [*line["sessions"], line["hm"], line["avg_novel"]], line["gain"]
        gains = [*gain, line["gain_hm"], line["gain_avg_novel"]]
        rows.append(row(line["method"], *map(plain, host), quoted=True))
        signed = (plain(value, signed=True) for value in gains)
        rows.append(row(f"+ CALA ({line['method']})", *signed, quoted=True))
    columns = ["method", *_sessions(0, source), "HM_last", "Avg_novel"]
    caption = f"{_quoted(source, 4)}, one run each."
    return Table("quoted_plug_and_play", "The paper's plug and play", caption, columns, rows)


def _sessions(first: int, source: dict[str, Any]) -> list[str]:
    return [str(first + i) for i in range(len(source["rows"][0]["sessions"]))]


def _quoted(source: dict[str, Any], number: int) -> str:
    encoded = f"{source['dataset']} with {source['encoder']}"
    return f"Quoted from the CALA paper (its Table {number}): {encoded}"


_QUOTED = {
    "sessions": quoted_sessions,
    "fpr": quoted_rates,
    "gamma": quoted_gamma,
    "plug": quoted_plug,
}
