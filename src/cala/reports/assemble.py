"""From runs to files: studies, sections, figures, tables and the page."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import matplotlib
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from cala.errors import InputError
from cala.files import shown, write_text
from cala.reports.drawing import STYLE, save_picture
from cala.reports.example_images import find_photos
from cala.reports.phrases import headline
from cala.reports.result_tables import summary_table
from cala.reports.runs import Run
from cala.reports.sections import Section, attempt, make_sections
from cala.reports.similarity import relation
from cala.reports.study import make_studies
from cala.table import CODE, Table, as_csv, latex, markdown
from cala.version import __version__

WRITERS = {"md": markdown, "csv": as_csv, "tex": latex}


@dataclass
class Part:
    """One study on the page; prefix : put before its anchors where there are several"""

    dataset: str
    headline: str
    focus: str
    summary: Table
    sections: list[Section]
    prefix: str = ""

    @property
    def tables(self) -> list[Table]:
        inner = (table for s in self.sections for table in [*s.tables, *s.folded])
        return [self.summary, *inner]


def assemble(
    runs: list[Run], out: Path, images: Path | None
) -> tuple[list[str], list[str], list[str]]:
    """Write everything below `out`; notes on what is missing, the files made, the headlines."""
    several = len(runs) > 1
    notes = [shown(f"{run.path.name}: {n}" if several else n) for run in runs for n in run.notes]
    studies = make_studies(runs)
    if not studies:
        raise InputError(
            " ".join(["no run here has a finished cell, so there is nothing to report.", *notes]),
            "finish it with cala run",
            code="nothing_to_report",
        )
    photos = find_photos(images) if images is not None else None
    relations = [
        (study.dataset, found)
        for study in studies
        if (artifact := study.artifacts.get(study.focus)) and (found := relation(artifact))
    ]
    parts, files = [], ["report.html"]
    svgs: dict[str, str] = {}
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():  # type: ignore[arg-type]
        # Names in scripts that the font lacks show as boxes in PNG and as they are in SVG.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        for i, study in enumerate(studies, 1):
            prefix = f"{i}-" if len(studies) > 1 else ""
            summary = summary_table(study, study.draws, "summary", "Main result")
            sections = list(make_sections(study, relations, photos, notes))
            part = Part(study.dataset, headline(study), study.focus, summary, sections, prefix)
            svgs |= _save_pictures(part, out / "figures", notes)
            parts.append(part)
    files += [f"figures/{name}.{ending}" for name in svgs for ending in ("svg", "png")]
    for part in parts:
        for table in part.tables:
            for ending, written in WRITERS.items():
                files.append(f"tables/{part.prefix}{table.name}.{ending}")
                write_text(out / files[-1], written(table))
    names = ", ".join(dict.fromkeys(study.dataset for study in studies))
    write_text(out / "report.html", _page(f"cala report: {names}", parts, svgs, notes))
    return notes, files, [part.headline for part in parts]


def _save_pictures(part: Part, folder: Path, notes: list[str]) -> dict[str, str]:
    """Inline SVG by name; a picture that cannot be saved is taken out of its section."""
    svgs = {}
    for section in part.sections:
        for picture in list(section.pictures):
            named = replace(picture, name=part.prefix + picture.name)
            svg = attempt(picture.title, lambda p=named: save_picture(p, folder), notes)  # type: ignore[misc]
            if svg is None:
                section.pictures.remove(picture)
            else:
                svgs[named.name] = svg
    return svgs


def _page(title: str, parts: list[Part], svgs: dict[str, str], notes: list[str]) -> str:
    """One HTML file that holds everything it shows."""
    files = resources.files("cala.reports")
    template, css = (files.joinpath(f"page.{end}").read_text("utf-8") for end in ("html", "css"))
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters["prose"] = _prose
    return environment.from_string(template).render(
        title=title,
        parts=parts,
        svgs={name: Markup(svg) for name, svg in svgs.items()},
        notes=notes,
        version=__version__,
        css=Markup(css),
    )


def _prose(words: str) -> Markup:
    """Text with `code` in backticks as HTML."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(words))))
