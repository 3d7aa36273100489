"""`cala report`: tables, figures and a page from the records of runs."""

from __future__ import annotations

import textwrap
from pathlib import Path

import typer

from cala.cli.options import AS_JSON, print_json
from cala.errors import InputError
from cala.files import shown


def report(
    runs: list[Path] = typer.Argument(..., help="Run folders; several data sets may be mixed."),
    out: Path | None = typer.Option(
        None, "--out", "-o", help="Folder to write (default: RUN/report; report/ for several runs)."
    ),
    open_page: bool = typer.Option(False, "--open", help="Open the page in a browser."),
    images: Path | None = typer.Option(
        None, help="Folder with one folder of images per class, to show as examples."
    ),
    as_json: bool = AS_JSON,
) -> None:
    """Make a page, figures and tables from finished runs.

    Figures are SVG and PNG, tables Markdown, CSV and LaTeX. Nothing is recomputed: the records and
    artifacts of the runs are enough, on any machine.

    Example: cala report runs/cifar100-0123456789 -o report --open
    """
    from cala.progress import busy
    from cala.reports.build import make_report

    place = out or (runs[0] / "report" if len(runs) == 1 else Path("report"))
    with busy("drawing the report"):
        made = make_report(runs, place, images)
    if as_json:
        found = {"page": str(made.page), "notes": made.notes, "files": made.files}
        print_json({**found, "seconds": made.seconds})
    else:
        for note in made.notes:
            typer.echo(f"missing: {note}")
        typer.echo(f"report: {made.page}" + (" (unchanged)" if made.reused else ""))
    if open_page:
        typer.launch(made.page.resolve().as_uri())


def after_run(place: Path, quiet: bool = False) -> str:
    """Make the report of a finished run; returns its path and headlines.

    Where nothing can draw, the run is done all the same, and it says how to get the report.
    """
    from cala.cli.terminal import console
    from cala.progress import busy
    from cala.reports.build import make_report

    try:
        with busy("drawing the report", quiet):
            made = make_report([place], place / "report")
    except InputError as error:
        if error.code != "missing_extra":
            raise
        return f"no report: {error}; then `cala report {shown(place)}` makes it"
    wrapped = [
        textwrap.fill(words, console().width, break_long_words=False, break_on_hyphens=False)
        for words in made.headlines
    ]
    return "\n".join([f"report: {made.page}", *wrapped])
