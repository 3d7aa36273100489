"""From runs to files: studies, sections, figures, tables and the page."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path

import matplotlib
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from cala.errors import InputError
from cala.files import shown, write_text
from cala.reports.drawing import Picture, save_picture
from cala.reports.example_images import find_photos
from cala.reports.phrases import explained, headline
from cala.reports.result_tables import summary_table
from cala.reports.runs import Run
from cala.reports.sections import Folded, Section, attempt, make_sections
from cala.reports.similarity import relation
from cala.reports.study import make_studies
from cala.table import CODE, Table, as_csv, latex, markdown
from cala.version import __version__

STYLE = Path(__file__).with_name("figures.mplstyle")


@dataclass(frozen=True)
class StudyPage:
    """One study on the page; prefix : put before its anchors where there are several"""

    dataset: str
    headline: str
    about: str
    summary: Table
    sections: list[Section]
    prefix: str


def assemble(
    runs: list[Run], out: Path, images: Path | None
) -> tuple[list[str], list[str], list[str]]:
    """Write everything below `out`; notes on what is missing, the files made, the headlines."""
    several = len(runs) > 1
    notes = [shown(f"{run.path.name}: {n}" if several else n) for run in runs for n in run.notes]
    studies = make_studies(runs)
    if not studies:
        why = " ".join(["no run here has a finished cell, so there is nothing to report.", *notes])
        raise InputError(why, "finish it with cala run", code="nothing_to_report")
    photos = find_photos(images) if images is not None else None
    relations = [(study.dataset, found) for study in studies if (found := relation(study))]
    pages, files = [], ["report.html"]
    svgs: dict[str, str] = {}
    with matplotlib.rc_context(fname=STYLE), warnings.catch_warnings():
        # Names in scripts that the font lacks show as boxes in PNG and as they are in SVG.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        for i, study in enumerate(studies, 1):
            prefix = f"{i}-" if len(studies) > 1 else ""
            summary = summary_table(study, study.draws, "summary", "Main result")
            sections = list(make_sections(study, relations, photos, notes))
            page = StudyPage(
                study.dataset, headline(study), explained(study), summary, sections, prefix
            )
            files += [*_write_table(summary, prefix, out), *_write(page, out, svgs, notes)]
            pages.append(page)
    names = ", ".join(dict.fromkeys(page.dataset for page in pages))
    write_text(out / "report.html", _html(f"cala report: {names}", pages, svgs, notes))
    return notes, files, [page.headline for page in pages]


def _write(page: StudyPage, out: Path, svgs: dict[str, str], notes: list[str]) -> Iterator[str]:
    """Write all figures and tables; a figure that cannot be saved is taken out of its section."""
    for section in page.sections:
        for item in list(section.items):
            if isinstance(item, Table | Folded):
                table = item.table if isinstance(item, Folded) else item
                yield from _write_table(table, page.prefix, out)
            elif isinstance(item, Picture):
                named = replace(item, name=page.prefix + item.name)
                save = partial(save_picture, named, out / "figures")
                if (svg := attempt(item.title, save, notes)) is None:
                    section.items.remove(item)
                    continue
                svgs[named.name] = svg
                yield from (f"figures/{named.name}.{ending}" for ending in ("svg", "png"))


def _write_table(table: Table, prefix: str, out: Path) -> Iterator[str]:
    for ending, text in {"md": markdown, "csv": as_csv, "tex": latex}.items():
        name = f"tables/{prefix}{table.name}.{ending}"
        write_text(out / name, text(table))
        yield name


def _html(title: str, pages: list[StudyPage], svgs: dict[str, str], notes: list[str]) -> str:
    """One HTML file that holds everything it shows."""
    files = resources.files("cala.reports")
    template, css = (files.joinpath(f"page.{end}").read_text("utf-8") for end in ("html", "css"))
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters["prose"] = _prose
    return environment.from_string(template).render(
        title=title,
        parts=pages,
        svgs={name: Markup(svg) for name, svg in svgs.items()},
        notes=notes,
        version=__version__,
        css=Markup(css),
    )


def _prose(words: str) -> Markup:
    """Text with `code` in backticks as HTML."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(words))))
