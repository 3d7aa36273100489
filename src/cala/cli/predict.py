"""`cala predict`: what photos show."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cala.cli.options import with_options
from cala.cli.photos import MODEL, REJECT, LoadOptions, percent
from cala.errors import InputError
from cala.files import reason, shown, write_text

if TYPE_CHECKING:
    from cala.model.prediction import Prediction, Why


@with_options
def predict(
    model: Path = MODEL,
    photos: list[Path] = typer.Argument(..., help="Photos, or folders of photos at any depth."),
    top: int = typer.Option(1, min=1, help="How many classes to show for each photo."),
    unknown: str = typer.Option(
        "on",
        help="on: answer 'unknown' if no class fits; report: flag it but still answer; "
        "off: disable.",
    ),
    reject: float | None = REJECT,
    why: bool = typer.Option(False, "--why", help="Show the closest classes and what β changed."),
    table: Path | None = typer.Option(None, "--csv", help="Also write a table to this file."),
    *,
    options: LoadOptions,
) -> None:
    """Predict what photos show, or 'unknown' if no class fits.

    A percentage compares the model's classes with each other; it says nothing about photos that
    fit none of them. If photos cannot be read, cala names them, still answers the others,
    and exits with code 1.

    Examples: cala predict birds some.jpg · cala predict birds trip/ --top 3 --csv trip.csv
    """
    from cala.cli.progress import counting
    from cala.model.photos import find_files, with_readable

    opened = options.open(model)
    paths = find_files(photos)
    with counting("looking at photos", len(paths), options.quiet) as count:
        found, bad = with_readable(
            paths,
            lambda good: opened.explain(
                good, top=top, unknown=unknown, reject=reject, why=why, advance=count
            ),
        )
    answers = found or []
    if table is not None:
        _write_csv(table, answers)
    if options.as_json:
        summary = {
            "model": str(model),
            "version": opened.version,
            "predictions": [answer.to_json() for answer in answers],
            "errors": [{"image": str(path), "error": fault} for path, fault in bad],
        }
        typer.echo(json.dumps(summary))
    else:
        _print(answers, top)
        for path, fault in bad:
            typer.echo(f"error: {shown(path)}: {fault}", err=True)
    if bad:
        raise typer.Exit(1)


def _print(answers: Sequence[Prediction], top: int) -> None:
    width = max((len(_words(answer)) for answer in answers), default=0)
    for answer in answers:
        typer.echo(f"{_words(answer):{min(width, 44)}}  {shown(answer.image)}")
        for label, share in answer.top[1:top]:
            typer.echo(f"  {shown(label)} {percent(share)}")
        if answer.why is not None:
            _print_why(answer.why)
            if answer.familiarity == answer.familiarity:
                typer.echo(
                    f"    {percent(answer.familiarity)} of genuine photos fit as badly or worse"
                )


def _words(answer: Prediction) -> str:
    best = f"{shown(answer.best)} {percent(answer.probability)}"
    if answer.label != answer.best:
        return f"unknown (closest: {best})"
    return f"{best} (perhaps unknown)" if answer.unknown else best


def _print_why(why: Why) -> None:
    width = max(13, *(len(shown(near.label)) for near in why.closest))
    typer.echo(f"    {'closest class':{width}}  kind   cosine  logit    β adds")
    for near in why.closest:
        typer.echo(
            f"    {shown(near.label):{width}}  {near.kind:5}  {near.cosine:6.3f}  "
            f"{near.logit:6.2f}  {near.shift:+8.2f}"
        )
    plain = shown(why.without_adapter) if why.changed else "the same"
    typer.echo(f"    without the adapter the answer would be {plain}")


def _write_csv(path: Path, answers: Sequence[Prediction]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    most = max((len(answer.top) for answer in answers), default=1)
    header = ["image", "label", "best", "kind", "probability", "familiarity", "unknown"]
    places = range(2, most + 1)
    header += [f"{what} {place}" for place in places for what in ("label", "probability")]
    writer.writerow(header)
    for answer in answers:
        fits = "" if answer.familiarity != answer.familiarity else f"{answer.familiarity:.4f}"
        row = [answer.image, answer.label, answer.best, answer.kind]
        row += [f"{answer.probability:.4f}", fits, str(answer.unknown).lower()]
        for label, share in answer.top[1:]:
            row += [label, f"{share:.4f}"]
        writer.writerow([_plain(cell) for cell in row])
    try:
        write_text(path, text.getvalue())
    except (OSError, ValueError) as error:
        detail = f"{shown(path)} cannot be written ({reason(error)})"
        raise InputError(detail, "choose another", field="csv") from error


def _plain(cell: str) -> str:
    """Replace bytes of a file name that are not valid text."""
    return cell.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
