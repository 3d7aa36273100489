"""The page holds the numbers of summary.json, needs nothing else, and is made only once."""

from __future__ import annotations

import json
import re

import pytest

from cala.reports.build import make_report
from reports.page_tables import page_tables

FIGURES = (
    "classes", "confusion", "curves", "gamma", "rates", "reliability", "similarity", "softmax",
    "swallowed", "tradeoff", "tsne",
)  # fmt: skip
TABLES = (
    "calibration", "classes", "confused_pairs", "costs", "differences", "fpr", "fpr_mirror",
    "gamma", "headroom", "plug_and_play", "protocol", "quoted_fpr",
    "quoted_gamma", "quoted_plug_and_play", "quoted_sessions", "sessions",
    "summary", "swallowed",
)  # fmt: skip


@pytest.fixture(scope="module")
def page(real_report) -> str:
    return (real_report / "report.html").read_text("utf-8")


def test_every_file_is_there(real_report):
    made = {p.relative_to(real_report).as_posix() for p in real_report.rglob("*") if p.is_file()}
    wanted = {f"figures/{name}.{end}" for name in FIGURES for end in ("svg", "png")}
    wanted |= {f"tables/{name}.{end}" for name in TABLES for end in ("md", "csv", "tex")}
    assert made == wanted | {"report.html", "report.json"}
    assert all((real_report / name).stat().st_size > 100 for name in made)


def test_tables_hold_the_numbers_of_the_summary(page, summary):
    tables = page_tables(page)
    names = {"Avg": "avg", "HM": "hm", "AHM": "ahm", "Avg_novel": "avg_novel", "FPR": "fpr_last"}
    names |= {"AUSUC": "ausuc", "NCR@2": "ncr2", "NCR@5": "ncr5"}
    head, *rows = tables["summary"]
    assert [row["cells"][0][0] for row in rows] == list(summary["random"])
    for row in rows:
        wanted = summary["random"][row["cells"][0][0]]["summary"]
        for (title, *_), (text, value, half) in zip(head["cells"], row["cells"], strict=True):
            if title in ("method", "n"):
                continue
            found = wanted[names.get(title, title)]
            assert value == pytest.approx(found["mean"]), title
            assert half == pytest.approx(found["half"]), title
            assert text.startswith(f"{found['mean']:.1f}".replace("-", "−"))
        assert row["cells"][-1][1] == wanted["last"]["n"] == 3


@pytest.mark.parametrize(("table", "column", "first"), [
    ("sessions", "accuracy", 0), ("fpr", "fpr", 1), ("fpr_mirror", "fpr_mirror", 1),
])  # fmt: skip
def test_session_tables_hold_the_numbers_of_the_summary(page, summary, table, column, first):
    for row in page_tables(page)[table][1:]:
        method = row["cells"][0][0]
        wanted = summary["random"][method]["sessions"][column][first:]
        for found, cell in zip(wanted, row["cells"][1:], strict=False):
            assert cell[1] == pytest.approx(found["mean"])
            assert cell[2] == pytest.approx(found["half"])


def test_differences_are_paired(page, summary):
    for row in page_tables(page)["differences"][1:]:
        wanted = summary["random"][row["cells"][0][0]]["difference"]["last"]
        assert row["cells"][1][1] == pytest.approx(wanted["mean"])
        assert row["cells"][1][2] == pytest.approx(wanted["half"])


def test_nothing_is_fetched(page):
    outside = re.findall(r'(?:src|href)="(?!#|data:)([^"]+)"', page)
    assert outside == []
    assert "<script" not in page
    assert "@import" not in page
    assert re.findall(r"url\((?!#)[^)]*\)", page) == []


def test_ids_are_unique_and_links_lead_somewhere(page):
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    links = set(re.findall(r'href="#([^"]+)"', page)) | set(re.findall(r"url\(#([^)]+)\)", page))
    assert links <= set(ids)


def test_captions_state_n_and_pictures_have_words(page):
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page, flags=re.S)
    assert sum("n = " in c for c in captions) >= len(FIGURES)
    assert page.count('role="img" aria-label="') == len(FIGURES)


def test_no_markup_of_captions_is_left(page):
    assert "`" not in page
    assert "<code>cala ablate gamma</code>" in page


def test_figures_show_the_method_of_the_headline(page, summary):
    """Not another one, which may gain nothing."""
    *_, method = summary["random"]
    captions = dict(re.findall(r'id="figure-(\w+)">.*?<figcaption>(.*?)</figcaption>', page, re.S))
    for name in ("gamma", "softmax", "confusion", "swallowed", "classes", "similarity"):
        assert method in captions[name], name


def test_rows_of_other_data_sets_are_folded_away(page):
    outside = re.sub(r"<details>.*?</details>", "", page, flags=re.S)
    assert 'class="quoted"' in page
    assert 'class="quoted"' not in outside


def test_the_headline_speaks_of_the_last_method_and_the_first(page, summary):
    sentence = re.search(r'<p class="headline">(.*?)</p>', page)[1]
    first, *_, method = summary["random"]
    last = summary["random"][method]["summary"]["last"]["mean"]
    assert f"{method} recognises {last:.1f} ±" in sentence
    assert first in sentence


def test_the_same_report_is_not_made_again(real_run, real_report):
    before = (real_report / "report.html").stat().st_mtime_ns
    again = make_report([real_run], real_report)
    assert again.reused
    assert (real_report / "report.html").stat().st_mtime_ns == before
    manifest = json.loads((real_report / "report.json").read_text("utf-8"))
    assert "curves.svg" in " ".join(manifest["files"])


def test_text_files_of_tables(real_report, summary):
    last = summary["random"]["la"]["summary"]["last"]
    markdown = (real_report / "tables" / "summary.md").read_text("utf-8")
    assert f"{last['mean']:.1f}" in markdown
    assert f"± {last['half']:.1f}" in markdown
    csv = (real_report / "tables" / "summary.csv").read_text("utf-8")
    assert csv.startswith("method,last,last ±,Avg")
    assert f"{last['mean']:.6g},{last['half']:.6g}" in csv
    latex = (real_report / "tables" / "summary.tex").read_text("utf-8")
    assert "\\toprule" in latex
    assert "Avg\\_novel" in latex
