"""The page in a real browser: no errors, no requests, tables and figures at both widths."""

from __future__ import annotations

import shutil

import pytest

from conftest import missing
from reports.page_tables import page_tables

WIDTHS = {"desktop": 1280, "phone": 390}
pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium")
    if chromium is None:
        missing("browser", "chromium is not installed")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("browser", "playwright is not installed")
    with sync_playwright() as tool:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        found = tool.chromium.launch(executable_path=chromium, args=flags)
        yield found
        found.close()


@pytest.fixture(params=[(w, c) for w in WIDTHS for c in ("light", "dark")], ids="-".join)
def page(request, browser, real_report):
    width, scheme = request.param
    tab = browser.new_page(
        viewport={"width": WIDTHS[width], "height": 800}, color_scheme=scheme, offline=True
    )
    tab.heard = []
    tab.on("console", lambda message: tab.heard.append(message.text))
    tab.on("pageerror", lambda error: tab.heard.append(str(error)))
    tab.on("requestfailed", lambda asked: tab.heard.append(asked.url))
    tab.asked = []
    tab.on("request", lambda asked: tab.asked.append(asked.url))
    tab.goto((real_report / "report.html").as_uri())
    yield tab
    tab.close()


def test_no_errors_and_no_requests(page):
    assert page.heard == []
    assert [url for url in page.asked if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in page.asked if url.startswith("file:")]) == 1


def test_figures_are_drawn_and_stay_in_their_boxes(page):
    width = page.viewport_size["width"]
    drawn = page.locator("figure.picture svg")
    assert drawn.count() == 11
    for i in range(drawn.count()):
        box = drawn.nth(i).bounding_box()
        assert box["width"] > 300
        assert box["height"] > 60
    for figure in page.locator("figure").all():
        box = figure.bounding_box()
        if box is not None:  # those in closed details have none
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width + 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page never scrolls"


def test_text_can_be_read_on_its_ground(page):
    """Ink against paper, in light and in dark: WCAG's 4.5."""
    contrast = page.evaluate("""() => {
        const lum = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255)
            .map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
            return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
        const of = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const ground = lum(getComputedStyle(document.querySelector('figure')).backgroundColor);
        return ['td', 'figcaption', 'tr.quoted td', 'svg text', 'nav a'].map(s => {
            const e = document.querySelector(s), c = getComputedStyle(e);
            return [s, of(ground, lum(s === 'svg text' ? c.fill : c.color))]; });
    }""")
    assert [c for c in contrast if c[1] < 4.5] == []


def test_tables_show_the_summary(page, summary):
    first = page.locator("table[data-table=summary]")
    assert first.is_visible()
    rows = page_tables(first.evaluate("e => e.outerHTML"))["summary"][1:]
    for row in rows:
        wanted = summary["random"][row["cells"][0][0]]["summary"]["last"]
        assert row["cells"][1][1] == pytest.approx(wanted["mean"])
        shown = first.locator(f"tr:has(th:text-is('{row['cells'][0][0]}')) td").first.inner_text()
        assert shown.split()[0] == f"{wanted['mean']:.1f}"


def test_anchors_lead_to_sections(page):
    for link in page.locator("nav a").all():
        target = link.get_attribute("href")
        assert page.locator(f"section{target}").count() == 1
