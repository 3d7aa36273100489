"""From runs to files: studies, sections, figures, tables and the page."""

from __future__ import annotations

import warnings
from pathlib import Path

import matplotlib

from cala.errors import InputError
from cala.files import shown, write_text
from cala.reports.figures.picture import Picture, save_picture
from cala.reports.figures.similarity import Relation, relation
from cala.reports.figures.style import STYLE
from cala.reports.headline import headline
from cala.reports.images import Photos, find_photos
from cala.reports.page import Part, render
from cala.reports.run import Run
from cala.reports.section import Section, attempt
from cala.reports.sections import make_sections
from cala.reports.study import Study, make_studies
from cala.reports.table import Table
from cala.reports.table_text import as_csv, latex, markdown
from cala.reports.tables.summary import summary_table
from cala.version import __version__


def assemble(
    runs: list[Run], out: Path, images: Path | None
) -> tuple[list[str], list[str], list[str]]:
    """Write everything below `out`; notes on what is missing, the files made, the headlines."""
    several = len(runs) > 1
    notes = [shown(f"{run.path.name}: {n}" if several else n) for run in runs for n in run.notes]
    studies = make_studies(runs)
    if not studies:
        missing = " ".join(notes)
        raise InputError(
            f"no run here has a finished cell, so there is nothing to report. {missing}"
        )
    photos = find_photos(images) if images is not None else None
    relations = [
        (study.dataset, found)
        for study in studies
        if (artifact := study.artifacts.get(study.focus)) and (found := relation(artifact))
    ]
    files: list[str] = []
    svgs: dict[str, str] = {}
    parts = []
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():  # type: ignore[arg-type]
        # Names in scripts that the font lacks show as boxes in PNG and as they are in SVG.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        for i, study in enumerate(studies):
            prefix = f"{i + 1}-" if len(studies) > 1 else ""
            part = _part(study, prefix, relations, photos, notes)
            _write_pictures(part.sections, prefix, out, svgs, files, notes)
            parts.append(part)
    for part in parts:
        for table in [part.summary, *(t for s in part.sections for t in [*s.tables, *s.folded])]:
            files += _write_table(table, part.prefix, out / "tables")
    names = ", ".join(dict.fromkeys(study.dataset for study in studies))
    page = out / "report.html"
    made = f"cala {__version__}."
    write_text(page, render(f"cala report: {names}", parts, svgs, notes, made))
    return notes, ["report.html", *files], [part.headline for part in parts]


def _part(
    study: Study,
    prefix: str,
    relations: list[tuple[str, Relation]],
    photos: Photos | None,
    notes: list[str],
) -> Part:
    summary = summary_table(study, study.draws, "summary", "Main result")
    sections = list(make_sections(study, relations, photos, notes))
    return Part(study.dataset, headline(study), summary, sections, prefix)


def _write_pictures(
    sections: list[Section],
    prefix: str,
    out: Path,
    svgs: dict[str, str],
    files: list[str],
    notes: list[str],
) -> None:
    """Save every picture; one that cannot be saved is taken out of its section."""
    for section in sections:
        kept = []
        for picture in section.pictures:
            named = Picture(**{**vars(picture), "name": prefix + picture.name})
            svg = attempt(picture.title, lambda p=named: save_picture(p, out / "figures"), notes)  # type: ignore[misc]
            if svg is not None:
                svgs[named.name] = svg
                files += [f"figures/{named.name}.{ending}" for ending in ("svg", "png")]
                kept.append(picture)
        section.pictures = kept


def _write_table(table: Table, prefix: str, folder: Path) -> list[str]:
    name = prefix + table.name
    write_text(folder / f"{name}.md", markdown(table))
    write_text(folder / f"{name}.csv", as_csv(table))
    write_text(folder / f"{name}.tex", latex(table))
    return [f"tables/{name}.{ending}" for ending in ("md", "csv", "tex")]
