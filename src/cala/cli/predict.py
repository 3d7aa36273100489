"""`cala predict`: what photos show."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cala.cli.options import with_options
from cala.cli.photos import (
    DETAILS,
    MODEL,
    REJECT,
    STRICT,
    LoadOptions,
    about_left_out,
    likely,
    note,
    padded,
    percent,
    width_of,
    write_csv,
)
from cala.files import shown

if TYPE_CHECKING:
    from cala.data.formats import LeftOut
    from cala.model.prediction import Prediction, Why

MANY = 10  # photos after which a summary is due


@with_options
def predict(
    model: Path = MODEL,
    photos: list[Path] = typer.Argument(..., help="Photos, or folders of photos at any depth."),
    top: int = typer.Option(1, min=1, help="How many classes to show for each photo."),
    unknown: str = typer.Option(
        "on",
        help="on: answer 'unknown' if no class fits; report: name the closest class all the same; "
        "off: do not check.",
    ),
    reject: float | None = REJECT,
    why: bool = typer.Option(False, "--why", help="Show which classes each photo looks like."),
    details: bool = DETAILS,
    table: Path | None = typer.Option(None, "--csv", help="Also write a table to this file."),
    strict: bool = STRICT,
    *,
    options: LoadOptions,
) -> None:
    """Predict what photos show, or 'unknown' if no class fits.

    A percentage compares the model's classes with each other; it says nothing about photos that
    fit none of them. If photos cannot be read, cala names them, still answers the others,
    and exits with code 1.

    Examples: cala predict birds some.jpg · cala predict birds trip/ --top 3 --csv trip.csv
    """
    from cala.model.photos import find_files, with_readable
    from cala.model.sorting import summary
    from cala.progress import counting

    opened = options.open(model)
    left_out: list[LeftOut] = []
    paths = find_files(photos, left_out)
    notes = about_left_out(left_out, len(paths), strict)
    for text in notes:
        note(text)
    with counting("looking at photos", len(paths), options.quiet) as count:
        found, bad = with_readable(
            paths,
            lambda good: opened.explain(
                good, top=top, unknown=unknown, reject=reject, why=why or details, advance=count
            ),
        )
    answers = found or []
    if table is not None:
        _write_csv(table, answers)
    if options.as_json:
        told = {
            "model": str(model),
            "version": opened.version,
            "predictions": [answer.to_json() for answer in answers],
            "errors": [{"image": str(path), "error": fault} for path, fault in bad],
            "notes": notes,
            "summary": dict(Counter(answer.label for answer in answers)),
        }
        typer.echo(json.dumps(told))
    else:
        _print(answers, top, details)
        if len(answers) >= MANY and not options.quiet:
            typer.echo(f"{len(answers):,} photos: {summary([a.label for a in answers])}")
        for path, fault in bad:
            typer.echo(f"error: {shown(path)}: {fault}", err=True)
    if bad:
        raise typer.Exit(1)


def _print(answers: Sequence[Prediction], top: int, details: bool) -> None:
    width = max((width_of(_words(answer)) for answer in answers), default=0)
    for answer in answers:
        typer.echo(f"{padded(_words(answer), min(width, 44))}  {shown(answer.image)}")
        for label, share in answer.top[1:top]:
            typer.echo(f"  {shown(label)} {likely(share)}")
        if details and answer.why is not None:
            _print_details(answer.why)
            if answer.familiarity == answer.familiarity:
                share_ = percent(answer.familiarity)
                typer.echo(f"    {share_} of photos that the model should know fit no better")
        elif answer.why is not None:
            _print_why(answer)


def _print_why(answer: Prediction) -> None:
    assert answer.why is not None
    near = sorted(answer.why.closest, key=lambda one: -one.cosine)
    typer.echo(f"    looks most like {', then '.join(shown(one.label) for one in near)}")
    if answer.unknown:
        typer.echo("    but less than photos of that class usually do, so it may be something else")
    if answer.why.changed:
        plain = shown(answer.why.without_adapter)
        typer.echo(f"    {plain} looks as close, but new classes are favoured as `cala tune` says")


def _words(answer: Prediction) -> str:
    best = f"{shown(answer.best)} {likely(answer.probability)}"
    if answer.label != answer.best:
        return f"unknown (most like {shown(answer.best)})"
    return f"{best} (perhaps unknown)" if answer.unknown else best


def _print_details(why: Why) -> None:
    width = max(13, *(width_of(shown(near.label)) for near in why.closest))
    typer.echo(f"    {'closest class':{width}}  kind   cosine  logit    β adds")
    for near in why.closest:
        typer.echo(
            f"    {padded(shown(near.label), width)}  {near.kind:5}  {near.cosine:6.3f}  "
            f"{near.logit:6.2f}  {near.shift:+8.2f}"
        )
    plain = shown(why.without_adapter) if why.changed else "the same"
    typer.echo(f"    if no class were favoured, the answer would be {plain}")


def _write_csv(path: Path, answers: Sequence[Prediction]) -> None:
    most = max((len(answer.top) for answer in answers), default=1)
    header = ["image", "label", "best", "kind", "probability", "familiarity", "unknown"]
    places = range(2, most + 1)
    header += [f"{what} {place}" for place in places for what in ("label", "probability")]
    rows = []
    for answer in answers:
        fits = "" if answer.familiarity != answer.familiarity else f"{answer.familiarity:.4f}"
        row = [answer.image, answer.label, answer.best, answer.kind]
        row += [f"{answer.probability:.4f}", fits, str(answer.unknown).lower()]
        for label, share in answer.top[1:]:
            row += [label, f"{share:.4f}"]
        rows.append(row)
    write_csv(path, header, rows)
