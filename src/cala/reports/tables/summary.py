"""The main table: every method after the last session."""

from __future__ import annotations

from collections.abc import Sequence

from cala.reports.study import Study
from cala.reports.table import Row, Table, difference, mark_best, number, plain, text
from cala.reports.words import NOT_COVERED, over_draws

COLUMNS = {
    "last": "last",
    "avg": "Avg",
    "base": "base",
    "novel": "novel",
    "hm": "HM",
    "ahm": "AHM",
    "avg_novel": "Avg_novel",
    "fpr_last": "FPR",
    "ausuc": "AUSUC",
    "ncr2": "NCR@2",
    "ncr5": "NCR@5",
}
LOWER = {"fpr_last"}
MEANING = (
    "last: accuracy over all classes after the last session; Avg: mean of all sessions; base, "
    "novel: accuracy on base and on novel images, always against all classes; HM: their harmonic "
    "mean, AHM and Avg_novel: means over sessions 1 to T; FPR: novel images taken for base classes "
    "(lower is better); AUSUC: area under the base/novel trade-off curve; NCR@2, NCR@5: novel "
    "accuracy where base accuracy has fallen by 2 or 5 points. Bold: best mean."
)


def summary_table(study: Study, draws: Sequence[str], name: str, title: str) -> Table:
    """Means and intervals of every summary column, in percent."""
    rows = []
    for method in study.methods:
        n = len(study.results.shared_draws([method], draws))
        cells = [number(study.results.estimate(method, c, draws)) for c in COLUMNS]
        rows.append(Row([text(method), *cells, plain(n, 0)]))
    for i, column in enumerate(COLUMNS, 1):
        rows = mark_best(rows, i, lowest=column in LOWER)
    caption = f"Percent of {study.split} images. {_draws(study, draws)}"
    return Table(name, title, caption, ["method", *COLUMNS.values(), "n"], rows, [MEANING])


def difference_table(study: Study) -> Table | None:
    """Every method against the first, paired on the same draws."""
    first, *others = study.methods
    if not others:
        return None
    columns = {k: v for k, v in COLUMNS.items() if k not in ("ncr2", "ncr5")}
    rows = []
    for method in others:
        n = len(study.results.shared_draws([method, first], study.draws))
        found = [study.results.difference(method, first, c, study.draws) for c in columns]
        rows.append(Row([text(method), *map(difference, found), plain(n, 0)]))
    caption = (
        f"Points above {first}, paired on test images and on the n draws that both have; half the "
        "95 % t-interval below each, with ≈ instead of ± where it includes 0: not distinguishable. "
        f"It is {study.results.covered(study.draws)}; {NOT_COVERED}"
    )
    return Table(
        "differences", f"Differences to {first}", caption, ["method", *columns.values(), "n"], rows
    )


def _draws(study: Study, draws: Sequence[str]) -> str:
    if list(draws) == list(study.draws):
        return over_draws(study)
    return f"{', '.join(draws)} draw only: one draw has no interval."
