"""The headroom of a run on its page: whose numbers, and what happens without them."""

from __future__ import annotations

import csv
import json

import pytest

from cala.reports.build import make_report
from cala.reports.run_tables import HEADROOM_ROWS, headroom_table
from cala.reports.runs import load_run
from cala.reports.study import make_studies
from reports.page_tables import page_tables

RATES = {"accuracy": 0.5, "base": 0.6, "novel": 0.3, "hm": 0.4, "ausuc": 0.25, "fitted": 0.55}


def headroom_of(**metrics):
    """metrics : draw by metric"""
    held = {
        metric: {
            "draw": draw,
            "images": 216,
            "rates": {
                name: {**RATES, "accuracy": 0.5 + i / 100} for i, name in enumerate(HEADROOM_ROWS)
            },
        }
        for metric, draw in metrics.items()
    }
    return {"schema": 1, "oracle": "uses test labels; cannot be selected", "headroom": held}


def table_of(run):
    (study,) = make_studies([load_run(run)])
    return headroom_table(study)


def test_a_page_shows_oracles_beside_methods(real_run, real_report):
    page = (real_report / "report.html").read_text("utf-8")
    assert '<section id="headroom">' in page
    assert "uses test labels and cannot be selected" in page
    rows = [row["cells"] for row in page_tables(page)["headroom"][1:]]
    assert [r[0][0] for r in rows] == [*HEADROOM_ROWS.values(), "la", "nearest-mean+cala-plus"]
    held = json.loads((real_run / "headroom.json").read_text())["headroom"]["cosine"]
    for cells, rates in zip(rows, held["rates"].values(), strict=False):
        wanted = [100 * rates[rate] for rate in ("accuracy", "base", "novel", "hm", "ausuc")]
        assert [c[1] for c in cells[2:7]] == pytest.approx(wanted)
    lines = [json.loads(x) for x in (real_run / "records.jsonl").read_text().splitlines()]
    la = next(r["metrics"] for r in lines if (r["method"], r["draw"], r["session"]) ==
              ("la", held["draw"], 2))  # fmt: skip
    shown = rows[len(HEADROOM_ROWS)][2:7]
    assert [c[1] for c in shown] == pytest.approx(
        [100 * la[rate] for rate in ("accuracy", "base", "novel", "hm", "ausuc")]
    )


def test_every_oracle_is_called_one(real_report):
    rows = csv.reader((real_report / "tables" / "headroom.csv").open(encoding="utf-8"))
    named = [row[0] for row in rows][1:]
    assert [name.startswith("oracle: ") for name in named] == [False, *[True] * 5, False, False]


def test_a_run_without_it_has_no_section(run, undrawn_figures):
    assert table_of(run) is None
    made = make_report([run], run / "report")
    assert not [note for note in made.notes if "headroom" in note]
    assert '<section id="headroom">' not in made.page.read_text("utf-8")
    (run / "headroom.json").write_text(json.dumps(headroom_of(cosine="canonical")))
    again = make_report([run], run / "report")
    assert not again.reused
    assert '<section id="headroom">' in again.page.read_text("utf-8")


def test_methods_of_another_metric_host_or_draw_are_left_out(run):
    def names():
        return [row.cells[0].text for row in table_of(run).rows][len(HEADROOM_ROWS) :]

    path, config = run / "headroom.json", json.loads((run / "config.json").read_text())
    path.write_text(json.dumps(headroom_of(cosine="canonical")))
    assert names() == ["cala"]
    path.write_text(json.dumps(headroom_of(whitened="canonical")))
    assert names() == []
    path.write_text(json.dumps(headroom_of(cosine="random:9")))
    assert names() == []
    path.write_text(json.dumps(headroom_of(cosine="canonical")))
    config["own_embeddings"] = {"nearest-mean": {}}
    (run / "config.json").write_text(json.dumps(config))
    assert names() == []


def test_the_gains_are_those_of_the_rows(run):
    (run / "headroom.json").write_text(json.dumps(headroom_of(cosine="canonical")))
    (note,) = table_of(run).notes
    for gain in ("+1.0 points", "+2.0 more", "+4.0 without"):
        assert gain in note


@pytest.mark.parametrize("content", [
    "", "[]", "{}",
    '{"schema": 1, "headroom": {"cosine": {"draw": "a", "images": 1e999, "rates": {}}}}',
    '{"schema": 2, "headroom": {}}', '{"schema": 1, "headroom": {"cosine": 3}}',
])  # fmt: skip
def test_damage_is_noted(run, content):
    (run / "headroom.json").write_text(content)
    found = load_run(run)
    assert found.headroom == {}
    assert ["headroom" in note for note in found.notes] == [True]


def test_a_rate_that_is_none_is_a_dash(run):
    content = headroom_of(cosine="canonical")
    content["headroom"]["cosine"]["rates"]["plain"] |= {"novel": None, "base": 7, "accuracy": True}
    (run / "headroom.json").write_text(json.dumps(content))
    table = table_of(run)
    assert [c.value for c in table.rows[0].cells[2:6]] == [None, None, None, 40.0]
    assert table.notes == []
