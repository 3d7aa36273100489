"""`cala fit` and `cala add`: a model from your own photos, and more classes for it."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from cala.cli.own import (
    AS_JSON,
    DEVICE,
    ENCODER,
    MODEL,
    QUIET,
    SKIP_BAD,
    THUMBNAILS,
    TRUST,
    note,
    photos_named,
)


def register(app: typer.Typer) -> None:
    app.command()(fit)
    app.command()(add)


def fit(
    photos: Path = typer.Argument(..., help="A folder with one folder of photos per class."),
    out: Path = typer.Option(..., "-o", "--out", help="The model: a folder that is made."),
    encoder: str = typer.Option(
        "efficientnet-lite0", help="`cala encoders` lists them; or a file of `cala train`."
    ),
    method: str = typer.Option("auto", help="`cala methods` lists them."),
    metric: str | None = typer.Option(
        None, help="cosine or whitened (default: the method's own).", show_default=False
    ),
    expect: int | None = typer.Option(
        None,
        min=1,
        help="Classes you will add in all (default: 2/3 of the known ones).",
        show_default=False,
    ),
    objective: str = typer.Option("accuracy", help="accuracy or harmonic: see `cala tune`."),
    max_base_loss: float | None = typer.Option(
        None, help="Accuracy that known classes may lose, such as 0.01.", show_default=False
    ),
    reject: float = typer.Option(0.05, help="Share of genuine photos that may be called unknown."),
    fakes: str = typer.Option(
        "image", help="image: mix up to 2,000 images; a number: up to so many; feature: none."
    ),
    tta: str = typer.Option("none", help="flip: look at the mirror image of each photo too."),
    seed: int = typer.Option(0, min=0, help="Of the mixed images and the adapter's training."),
    skip_bad: bool = SKIP_BAD,
    keep_thumbnails: bool = THUMBNAILS,
    device: str = DEVICE,
    as_json: bool = AS_JSON,
    quiet: bool = QUIET,
) -> None:
    """Learn the classes you have: one folder of photos per class.

    Photos are looked at once and not kept; stopped at any moment, the same command goes on where
    it was.

    Example: cala fit photos/known/ -o birds
    """
    from cala.cli.devices import choose_device
    from cala.cli.progress import progress_bar
    from cala.files import shown
    from cala.model import fit as make

    with photos_named(), progress_bar("photos and mixed images", quiet) as advance:
        model = make(
            photos,
            out,
            encoder=encoder,
            method=method,
            metric=metric,
            objective=objective,
            max_base_loss=max_base_loss,
            expect=expect,
            fakes=fakes,
            tta=tta,
            reject=reject,
            seed=seed,
            skip_bad=skip_bad,
            keep_thumbnails=keep_thumbnails,
            device=choose_device(device),
            advance=advance,
        )
    if as_json:
        said = {
            "model": str(out),
            "version": 1,
            "classes": len(model.classes),
            "photos": len(model.current.photos),
            "notes": [str(one) for one in model.notes],
        }
        typer.echo(json.dumps(said))
        return
    for one in model.notes:
        note(str(one))
    typer.echo(
        f"{shown(out)}: {len(model.classes)} classes from {len(model.current.photos):,} photos "
        f"({model.current.encoder.uri}, {method})"
    )
    if not quiet:
        typer.echo(f"next: cala add {shown(out)} NEW_PHOTOS, or cala predict {shown(out)} PHOTO")


def add(
    model: Path = MODEL,
    photos: list[Path] = typer.Argument(
        ..., help="A folder with one folder per class; or photos, with --as."
    ),
    name: str | None = typer.Option(
        None, "--as", help="What these photos show, where no folder says it.", show_default=False
    ),
    skip_bad: bool = SKIP_BAD,
    keep_thumbnails: bool = THUMBNAILS,
    encoder: str | None = ENCODER,
    trust_encoder: str | None = TRUST,
    device: str = DEVICE,
    as_json: bool = AS_JSON,
    quiet: bool = QUIET,
) -> None:
    """Teach new classes, or give a known class more photos.

    Nothing that the model knows about other classes changes. A photo that it has learned from
    before is noticed and not counted twice.

    Examples: cala add birds photos/new/ · cala add birds img*.jpg --as kingfisher
    """
    from cala.cli.devices import choose_device
    from cala.cli.progress import counting
    from cala.files import shown
    from cala.model import load
    from cala.model.photos import find_files, labelled_files

    opened = load(model, encoder=encoder, device=choose_device(device), trust_encoder=trust_encoder)
    notes: list[str] = []
    if name is not None:
        paths = find_files(photos)
        names = [name] * len(paths)
    else:
        paths, names = [], []
        for folder in photos:
            found, labels = labelled_files(folder, notes=notes)
            paths += found
            names += labels
    with photos_named(), counting("looking at photos", len(paths), quiet) as count:
        added = opened.add(
            paths, names, skip_bad=skip_bad, keep_thumbnails=keep_thumbnails, advance=count
        )
    if as_json:
        said = {
            "model": str(model),
            "version": added.version,
            "photos": added.photos,
            "new": list(added.new),
            "again": added.again,
            "alike": added.alike,
            "skipped": added.skipped,
            "notes": notes,
        }
        typer.echo(json.dumps(said))
        return
    for text in (*notes, *(f"left out {bad}" for bad in added.skipped)):
        note(text)
    for label, other in added.alike.items():
        note(
            f"'{shown(label)}' is a new class beside '{shown(other)}'; if that was meant, "
            f"`cala undo {shown(model)}`, and add the photos to '{shown(other)}'"
        )
    if added.again:
        note(f"{added.again} photos were known already and were not counted again")
    if not added.photos:
        typer.echo(f"{shown(model)}: nothing new")
        return
    for label, count_ in added.photos.items():
        photos_ = "photo" if count_ == 1 else "photos"
        said_ = f"new class, {count_}" if label in added.new else f"{count_} more"
        typer.echo(f"{shown(label)}: {said_} {photos_}")
    if not quiet:
        typer.echo(
            f"{shown(model)} knows {len(opened.classes)} classes now (version {added.version}); "
            f"`cala undo {shown(model)}` goes back"
        )
