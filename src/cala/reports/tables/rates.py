"""False-positive rate in each session (Table tabminiFNR) and its mirror."""

from __future__ import annotations

from cala.reports.quoted import impossible_rates, is_quoted_set, quoted
from cala.reports.study import Study
from cala.reports.table import Cell, Row, Table, mark_best, number, plain, text
from cala.reports.words import over_draws

TITLES = {
    "fpr": "Novel images taken for base classes (FPR)",
    "fpr_mirror": "Base images taken for novel classes (the mirror of FPR)",
}


def rate_table(study: Study, column: str) -> Table:
    """Sessions 1 to T; session 0 has no novel classes."""
    sessions = study.sessions
    rows = [
        Row([text(method), *map(number, study.per_session(method, column)[1:])])
        for method in study.methods
    ]
    for i in range(1, sessions + 1):
        rows = mark_best(rows, i, lowest=True)
    notes: list[str] = []
    if column == "fpr" and is_quoted_set("fpr", study.dataset):
        more, notes = quoted_rows(sessions)
        rows += more
    caption = f"Percent, lower is better. {over_draws(study)}"
    columns = ["method", *map(str, range(1, sessions + 1))]
    return Table(column, TITLES[column], caption, columns, rows, notes)


def quoted_rates() -> Table:
    """The paper's own table, for runs on other data sets."""
    source = quoted()["fpr"]
    sessions = len(source["rows"][0]["sessions"])
    rows, notes = quoted_rows(sessions)
    caption = (
        f"Quoted from the paper (its Table 1): {source['dataset']} with {source['encoder']}, "
        "percent. Another data set and encoder: not comparable with the numbers above."
    )
    columns = ["method", *map(str, range(1, sessions + 1))]
    return Table("quoted_fpr", "The paper's false-positive rates", caption, columns, rows, notes)


def quoted_rows(sessions: int) -> tuple[list[Row], list[str]]:
    """The paper's rows, and notes on rates that cannot come from one run."""
    source = quoted()["fpr"]
    rows, odd = [], []
    for row in source["rows"]:
        values = [plain(v) for v in row["sessions"][:sessions]]
        values += [Cell()] * (sessions - len(values))
        rows.append(Row([text(row["method"]), *values], quoted=True))
        wrong = impossible_rates(row, source["images_per_session"])
        if wrong:
            odd.append(f"{row['method']} (sessions {', '.join(map(str, wrong))})")
    note = (
        f"Printed rates that are no whole number of images out of {source['images_per_session']} "
        f"per session, so not of one run: {'; '.join(odd)}."
    )
    return rows, [note] if odd else []
