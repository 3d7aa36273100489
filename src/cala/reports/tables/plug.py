"""Plug and play (Table tabminibeta): each host with and without an adapter."""

from __future__ import annotations

from cala.reports.quoted import is_quoted_set, quoted
from cala.reports.study import Study
from cala.reports.table import Cell, Row, Table, difference, number, plain, text
from cala.reports.words import over_draws


def plug_pairs(study: Study) -> list[tuple[str, str]]:
    """(host, host with adapter) where both were run in the same metric."""
    return [(host, m) for m in study.methods if (host := study.host(m)) is not None]


def plug_table(study: Study) -> Table:
    """The host's accuracies, then the gains of each adapter on it."""
    rows: list[Row] = []
    pairs = plug_pairs(study)
    for host in dict.fromkeys(host for host, _ in pairs):
        rows.append(Row(_host_cells(study, host)))
        rows += [Row(_gain_cells(study, host, m)) for h, m in pairs if h == host]
    caption = (
        "Hosts and what adapters add to them, in points, paired on the same draws and test images "
        f"(≈: not distinguishable, the interval includes 0). {over_draws(study)}"
    )
    rows += _quoted(study.sessions)
    here = is_quoted_set("plug", study.dataset)
    notes = [
        "Quoted rows: the paper's Table 4, mini-ImageNet, one run each"
        + ("." if here else "; another data set, not comparable with the rows above.")
    ]
    columns = ["method", *map(str, range(study.sessions + 1)), "HM_last", "Avg_novel"]
    return Table("plug_and_play", "Plug and play", caption, columns, rows, notes)


def _host_cells(study: Study, host: str) -> list[Cell]:
    found = study.per_session(host, "accuracy")
    ends = [study.results.estimate(host, c, study.draws) for c in ("hm", "avg_novel")]
    return [text(host), *(number(e, 2) for e in [*found, *ends])]


def _gain_cells(study: Study, host: str, method: str) -> list[Cell]:
    gains = study.gains(method, host)
    ends = [study.results.difference(method, host, c, study.draws) for c in ("hm", "avg_novel")]
    adapter = str(study.adapter(method))
    name = f"+ {adapter}" if method == adapter else f"+ {adapter} ({method})"
    return [text(name), Cell(), *map(difference, [*gains[1:], *ends])]


def _quoted(sessions: int) -> list[Row]:
    rows = []
    for row in quoted()["plug"]["rows"]:
        for name, values, ends, signed in (
            (row["method"], row["sessions"], (row["hm"], row["avg_novel"]), False),
            (
                f"+ CALA ({row['method']})",
                row["gain"],
                (row["gain_hm"], row["gain_avg_novel"]),
                True,
            ),
        ):
            cells = [plain(v, signed=signed) for v in values[: sessions + 1]]
            cells += [Cell()] * (sessions + 1 - len(cells))
            last = [plain(v, signed=signed) for v in ends]
            rows.append(Row([text(name), *cells, *last], quoted=True))
    return rows
