"""Accuracy in each session (Table tabminicom), with the paper's rows where it has them."""

from __future__ import annotations

from cala.reports.quoted import average_slip, is_quoted_set, quoted
from cala.reports.study import Study
from cala.reports.table import Cell, Row, Table, difference, mark_best, number, plain, text
from cala.reports.words import over_draws


def sessions_table(study: Study) -> Table:
    """One row per method; quoted rows only of the same data set."""
    sessions = study.sessions
    rows = [Row(_cells(study, method)) for method in study.methods]
    for column in range(1, sessions + 3):
        rows = mark_best(rows, column)
    notes: list[str] = []
    if is_quoted_set("sessions", study.dataset):
        more, notes = quoted_rows(sessions)
        rows += more
    elif is_quoted_set("gamma", study.dataset):
        rows += _quoted_cifar(sessions)
        notes = [
            "Quoted: the paper prints two rows for this data set, in its table on γ "
            f"({quoted()['gamma']['encoder']}, another encoder than here)."
        ]
    focus = study.focus
    caption = (
        f"Accuracy over all classes seen so far in each session, percent. {over_draws(study)} "
        f"Δ_last: what {focus} gains over the row in the last session, paired on the same draws "
        "and test images."
    )
    return Table("sessions", "Accuracy in each session", caption, _columns(sessions), rows, notes)


def quoted_table() -> Table:
    """The paper's own table, for runs on other data sets."""
    source = quoted()["sessions"]
    rows, notes = quoted_rows(len(source["rows"][0]["sessions"]) - 1)
    caption = (
        f"Quoted from the paper (its Table 2): {source['dataset']} with {source['encoder']}, one "
        "run each. Another data set and encoder: not comparable with the numbers above."
    )
    columns = _columns(len(rows[0].cells) - 4)
    return Table("quoted_sessions", "The paper's accuracies", caption, columns, rows, notes)


def quoted_rows(sessions: int) -> tuple[list[Row], list[str]]:
    """The paper's rows with their printed averages, and notes on slips."""
    rows, notes = [], []
    for row in quoted()["sessions"]["rows"]:
        values = [plain(v) for v in row["sessions"][: sessions + 1]]
        values += [Cell()] * (sessions + 1 - len(values))
        last = plain(row["delta_last"], signed=True)
        name = row["method"] + (" ◇" if row.get("reproduced") else "")
        rows.append(Row([text(name), *values, plain(row["avg"]), last], quoted=True))
        slip = average_slip(row)
        if slip is not None:
            notes.append(
                f"{row['method']}: printed average {row['avg']:.2f}; the mean of its own sessions "
                f"is {slip:.2f}."
            )
        if "note" in row:
            notes.append(f"{row['method']}: {row['note']}.")
    notes.append("◇: reproduced by the paper's authors from open code. Quoted Δ_last is CALA's.")
    return rows, notes


def _columns(sessions: int) -> list[str]:
    return ["method", *map(str, range(sessions + 1)), "Avg", "Δ_last"]


def _cells(study: Study, method: str) -> list[Cell]:
    results, draws = study.results, study.draws
    own = method == study.focus
    gain = results.difference(study.focus, method, "last", draws)
    return [
        text(method),
        *(number(found, 2) for found in study.per_session(method, "accuracy")),
        number(results.estimate(method, "avg", draws), 2),
        Cell() if own else difference(gain),
    ]


def _quoted_cifar(sessions: int) -> list[Row]:
    names = {0: "baseline (γ = 0)", 10: "CALA (γ = 10)"}
    found = []
    for row in quoted()["gamma"]["rows"]:
        if row["gamma"] in names:
            empty = [Cell()] * sessions
            cells = [text(names[row["gamma"]]), *empty, plain(row["last"]), plain(row["avg"])]
            found.append(Row([*cells, Cell()], quoted=True))
    return found
