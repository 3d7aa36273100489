"""`cala sort`: photos into one folder per class, and back."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cala.cli.options import with_options
from cala.cli.photos import REJECT, STRICT, LoadOptions, about_left_out, note, write_csv
from cala.errors import InputError
from cala.files import counted, quoted, shown

if TYPE_CHECKING:
    from cala.data.formats import LeftOut


@with_options
def sort(
    model: Path | None = typer.Argument(None, help="The model; not needed with --undo."),
    photos: list[Path] | None = typer.Argument(
        None, help="Photos, or folders of photos at any depth."
    ),
    out: Path | None = typer.Option(None, "-o", "--out", help="Folder for one folder per class."),
    link: bool = typer.Option(False, "--link", help="Make hard links, which need no space."),
    move: bool = typer.Option(False, "--move", help="Move photos instead of copying them."),
    unknown: str = typer.Option("on", help="on: photos that fit no class go to 'unknown'; off."),
    reject: float | None = REJECT,
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what would be done, do nothing."),
    undo: Path | None = typer.Option(
        None, "--undo", metavar="FOLDER", help="Take back what was sorted into this folder."
    ),
    table: Path | None = typer.Option(None, "--csv", help="Also write a table to this file."),
    strict: bool = STRICT,
    *,
    options: LoadOptions,
) -> None:
    """Sort photos into one folder per class, as copies or links.

    Nothing is ever overwritten; --move moves the photos themselves.

    A list in the new folder, cala-sort.json, lets `cala sort --undo` take it all back.

    Examples: cala sort birds trip/ -o sorted/ · cala sort --undo sorted/
    """
    if undo is not None:
        if model is not None or out is not None:
            raise InputError("--undo takes one folder", "leave out the others", field="undo")
        _undo(undo, options.as_json)
        return
    if model is None or not photos or out is None:
        fix = "such as `cala sort birds trip/ -o sorted/`"
        raise InputError("give a model, photos and --out", fix, field="photos")
    if link and move:
        raise InputError("--link and --move exclude each other", "choose one", field="link")
    from cala.model.photos import find_files, with_readable
    from cala.model.sorting import sort_photos, summary
    from cala.progress import counting

    opened = options.open(model)
    left_out: list[LeftOut] = []
    own = out.absolute()
    paths = [path for path in find_files(photos, left_out) if own not in path.absolute().parents]
    others = [one for one in left_out if own not in one.path.absolute().parents]
    notes = about_left_out(others, len(paths), strict)
    for text in notes:
        note(text)
    if not paths:
        raise InputError("all photos are in the folder to sort into", field="photos")
    with counting("looking at photos", len(paths), options.quiet) as count:
        found, bad = with_readable(
            paths,
            lambda good: opened.explain(good, unknown=unknown, reject=reject, advance=count),
        )
    action = "link" if link else "move" if move else "copy"
    with counting("sorting photos", len(paths), options.quiet) as count:
        done, before = sort_photos(found or [], out, action, dry_run=dry_run, advance=count)
    if table is not None:
        write_csv(table, list(CSV), (list(map(str, asdict(one).values())) for one in done))
    labels = [one.label for one in done]
    if options.as_json:
        told = {
            "folder": str(out),
            "photos": [asdict(one) for one in done],
            "sorted_before": before,
            "summary": dict(Counter(labels)),
            "errors": [{"image": str(path), "error": fault} for path, fault in bad],
            "notes": notes,
        }
        typer.echo(json.dumps(told))
    else:
        for path, fault in bad:
            typer.echo(f"error: {shown(path)}: {fault}", err=True)
        if before:
            note(f"{counted(before, 'photo')} had been sorted before")
        verb = {"copy": "copied", "link": "linked", "move": "moved"}[action]
        would = "would be " * dry_run
        about = f": {summary(labels)}" if labels else ""
        typer.echo(f"{counted(len(done), 'photo')} {would}{verb} to {shown(out)}{about}")
        if not options.quiet and not dry_run and done:
            typer.echo(f"`cala sort --undo {quoted(out)}` takes it back")
    if bad:
        raise typer.Exit(1)


CSV = ("source", "target", "action", "label", "probability", "sha256")


def _undo(folder: Path, as_json: bool) -> None:
    from cala.model.sorting import unsort_photos

    count, stay = unsort_photos(folder)
    if as_json:
        told = {"folder": str(folder), "undone": count, "stay": [list(one) for one in stay]}
        typer.echo(json.dumps(told))
        return
    typer.echo(f"{counted(count, 'photo')} taken back from {shown(folder)}")
    for target, why in stay:
        note(f"{shown(target)} stays: {why}")
