"""Quoted numbers, tables as text, labels, correlations and calibration."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from cala.reports.class_tables import reliability
from cala.reports.decision_regions import _marker
from cala.reports.drawing import inline
from cala.reports.paper_numbers import average_slip, impossible_rates, paper_numbers
from cala.reports.result_figures import look, spread, tradeoff
from cala.reports.runs import load_run
from cala.reports.similarity import in_words, pearson
from cala.reports.study import make_studies
from cala.table import Row, Table, TableCell, as_csv, latex, mark_best, markdown
from reports.make_run import make_run
from reports.page_tables import page_tables


def test_quoted_numbers_agree_with_each_other():
    """Every printed Δ_last is CALA's last minus the row's; slips are found, and only these."""
    rows = paper_numbers()["sessions"]["rows"]
    cala = rows[-1]["sessions"][-1]
    for row in rows[:-1]:
        assert row["delta_last"] == pytest.approx(cala - row["sessions"][-1], abs=0.0051)
    slips = {row["method"]: average_slip(row) for row in rows}
    assert {k: v for k, v in slips.items() if v} == {
        "LIMIT": 59.06, "GKEAL": 60.48, "LA-fscil": 67.67,
    }  # fmt: skip
    odd = {r["method"]: impossible_rates(r, 500) for r in paper_numbers()["fpr"]["rows"]}
    assert odd["CALA"] == odd["Baseline"] == []
    assert {"CEC", "FACT", "LA-fscil"} <= {m for m, found in odd.items() if found}
    gamma = paper_numbers()["gamma"]["rows"]
    for row in gamma[1:]:
        assert row["delta_last"] == pytest.approx(row["last"] - gamma[0]["last"], abs=0.0051)
    hosts = {row["method"]: row["sessions"] for row in rows}
    for row in paper_numbers()["plug"]["rows"]:
        assert row["sessions"] == hosts[row["method"]]


def test_the_papers_rows_stand_beside_ours_only_on_its_data_set(tmp_path):
    from cala.reports.result_tables import rate_table, sessions_table
    from cala.reports.runs import load_run
    from cala.reports.study import make_studies

    size = {"sessions": 8, "draws": 2, "way": 1, "per_class": 4}
    (mini,) = make_studies([load_run(make_run(tmp_path / "m", dataset="mini_imagenet", **size))])
    table = sessions_table(mini)
    theirs = {row.cells[0].text: row for row in table.rows if row.quoted}
    assert len(theirs) == 12
    assert theirs["LA-fscil"].cells[-2].value == 65.43
    assert any("mean of its own sessions is 67.67" in note for note in table.notes)
    assert sum(row.quoted for row in rate_table(mini, "fpr").rows) == 6
    assert not any(row.quoted for row in rate_table(mini, "fpr_mirror").rows)
    (other,) = make_studies([load_run(make_run(tmp_path / "o", dataset="other", **size))])
    assert not any(row.quoted for row in sessions_table(other).rows)


TABLE = Table(
    "t", "Title", "Caption with 5 % & more.", ["method", "last"],
    [
        Row([TableCell(text="a|b_c"), TableCell(value=1.26, half=0.04)]),
        Row([TableCell(text="minus"), TableCell(value=-2.0, half=3.0, signed=True, unclear=True)]),
        Row([TableCell(text="Theirs"), TableCell(value=9.0)], quoted=True),
        Row([TableCell(text="none"), TableCell()]),
    ],
)  # fmt: skip


def test_tables_as_text():
    lines = markdown(TABLE).splitlines()
    assert lines[4] == "| a\\|b_c | 1.3 ± 0.0 |"
    assert lines[5] == "| minus | −2.0 ≈ 3.0 |"
    assert lines[6] == "| *Theirs (quoted)* | 9.0 |"
    assert lines[7] == "| none | – |"
    rows = list(csv.reader(io.StringIO(as_csv(TABLE))))
    assert rows[0] == ["method", "last", "last ±", "source"]
    assert rows[1] == ["a|b_c", "1.26", "0.04", "measured"]
    assert rows[3] == ["Theirs", "9", "", "quoted"]
    text = latex(TABLE)
    assert r"a|b\_c & 1.3 {\scriptsize $\pm$ 0.0} \\" in text
    assert r"\textit{Theirs} (quoted)" in text
    assert r"5 \% \& more" in text
    assert text.count("{") == text.count("}")


def test_the_best_is_never_a_quoted_row():
    rows = mark_best(TABLE.rows, [1])
    assert [row.cells[1].best for row in rows] == [True, False, False, False]
    assert mark_best(rows[:1], [1])[0].cells[1].best, "unchanged"
    assert mark_best(TABLE.rows, [1], lowest=True)[1].cells[1].best


def test_means_written_alike_are_equally_good():
    values = (70.04, 70.01, 69.96, 69.94)
    rows = [Row([TableCell(text="m"), TableCell(value=v, digits=1)]) for v in values]
    rows.append(Row([TableCell(text="theirs"), TableCell(value=70.0)], quoted=True))
    assert [row.cells[1].best for row in mark_best(rows, [1])] == [True, True, True, False, False]
    lowest = mark_best(rows[1:], [1], lowest=True)
    assert [row.cells[1].best for row in lowest] == [False, False, True, False]


@pytest.mark.parametrize(
    ("name", "in_markdown", "in_latex"),
    [
        (
            "<script>alert(1)</script>",
            "&lt;script&gt;alert(1)&lt;/script&gt;",
            r"\textless{}script\textgreater{}alert(1)\textless{}/script\textgreater{}",
        ),
        ("a & b", "a &amp; b", r"a \& b"),
        ("two\nlines", "two lines", "two lines"),
        ("*`[x](y)\\", r"\*\`\[x](y)\\", r"*`[x](y)\textbackslash{}"),
        ("5 % #1 $x^2_i$ {~}", None, r"5 \% \#1 \$x\textasciicircum{}2\_i\$ \{\textasciitilde{}\}"),
        ("a<b>\\c", r"a&lt;b&gt;\\c", r"a\textless{}b\textgreater{}\textbackslash{}c"),
        ("🐦 long-tailed bird of forty characters 🐦", None, None),
    ],
)
def test_any_name_is_one_row_of_plain_text(name, in_markdown, in_latex):
    table = Table(
        "t", name, name, [name, "v"], [Row([TableCell(text=name), TableCell(value=1.0)])], [name]
    )
    in_markdown, in_latex = in_markdown or name, in_latex or name
    lines = markdown(table).splitlines()
    assert lines[4] == f"| {in_markdown} | 1.0 |"
    assert not any("<script" in line for line in lines)
    assert len(lines) == 7, "no line is broken"
    text = latex(table)
    assert f"\n{in_latex} & 1.0 \\\\\n" in text
    assert f"\n{in_latex} & v \\\\\n" in text
    assert f"\\caption{{{in_latex} {in_latex}}}\n" in text
    rows = list(csv.reader(io.StringIO(as_csv(table), newline="")))
    assert rows[1][0] == name.replace("\n", " ")


def test_commands_in_captions_are_code():
    table = Table("t", "", "See `cala ablate gamma`.", ["a"], notes=["With `--full-sessions`."])
    assert r"\texttt{cala ablate gamma}. With \texttt{--full-sessions}." in latex(table)
    assert markdown(table).startswith("See `cala ablate gamma`.\n")


def test_spread_keeps_order_and_distance():
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = np.sort(rng.uniform(0, 10, rng.integers(1, 15)))
        placed = spread(values.tolist(), 0.6, 0.0, 10.0)
        assert np.diff(placed).min(initial=1) >= 0.6 - 1e-9
        assert min(placed) > -1e-9
        assert max(placed) < 10 + 1e-9
    assert spread([], 1.0, 0, 1) == []


def test_no_two_methods_look_alike():
    assert len({str(look(i)) for i in range(28)}) == 28


def test_methods_are_told_apart_without_colour():
    """By line and marker, as a page printed in grey shows them; neighbours by their line alone."""
    looks = [look(i) for i in range(14)]
    assert len({(str(x["linestyle"]), x["marker"]) for x in looks}) == 14
    for i in range(13):
        assert looks[i]["linestyle"] != looks[i + 1]["linestyle"]


def test_classes_of_the_regions_are_told_apart_without_colour():
    assert len({_marker(k, 4) for k in range(6)}) == 6


def test_trade_off_curves_carry_their_markers(tmp_path):
    (study,) = make_studies([load_run(make_run(tmp_path / "run"))])
    (axes,) = tradeoff(study).figure.axes
    drawn = [x for x in axes.lines if len(x.get_xdata()) > 2]
    assert len({x.get_marker() for x in drawn}) == len(study.methods)
    assert "None" not in {x.get_marker() for x in drawn}


def test_correlations_state_their_sign():
    x = np.arange(30.0)
    down = -x + np.random.default_rng(0).normal(size=30)
    assert "negative" in in_words(pearson(x, down), 30)
    assert "−0.9" in in_words(pearson(x, down), 30)
    noise = np.random.default_rng(1).normal(size=30)
    assert "includes 0" in in_words(pearson(x, noise), 30)
    assert "no correlation" in in_words(pearson(x[:2], x[:2]), 2)
    assert "no correlation" in in_words(pearson(x, 0 * x), 30)


def test_ece_of_a_calibrated_and_of_a_vain_classifier():
    rng = np.random.default_rng(0)
    sure = rng.uniform(0, 1, 20000)
    assert reliability(sure, rng.uniform(size=20000) < sure).ece < 1.5
    vain = reliability(np.full(100, 1.0), np.arange(100) < 30)
    assert vain.ece == pytest.approx(70)
    assert vain.count.sum() == 100


def test_inline_svg_takes_the_pages_colours_and_its_own_ids():
    svg = (
        '<?xml version="1.0"?>\n<svg width="72pt" height="9pt" viewBox="0 0 72 9">'
        '<path id="p" style="fill: #0072b2; stroke: #1a1a1a" clip-path="url(#c)"/>'
        '<use xlink:href="#p"/></svg>'
    )
    found = inline(svg, "name", 'a "quoted" <alt>')
    assert found.startswith("<svg")
    assert 'id="name-p"' in found
    assert 'xlink:href="#name-p"' in found
    assert "url(#name-c)" in found
    assert "fill: var(--c1); stroke: var(--ink)" in found
    assert 'aria-label="a &quot;quoted&quot; &lt;alt&gt;"' in found
    assert " width=" not in found


def test_page_tables_reads_what_the_page_writes(real_report):
    assert page_tables((real_report / "report.html").read_text("utf-8"))["summary"]
