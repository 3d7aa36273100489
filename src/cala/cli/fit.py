"""`cala fit` and `cala add`: a model from your own photos, and more classes for it."""

from __future__ import annotations

import json
from pathlib import Path

import typer

import cala
from cala.cli.options import AS_JSON, DEVICE, SHOT_VIEWS, options_class, with_options
from cala.cli.photos import (
    KEEP_THUMBNAILS,
    MODEL,
    QUIET_HINTS,
    SKIP_BAD,
    LoadOptions,
    note,
    skip_bad_hint,
)
from cala.cli.progress import counting, progress_bar
from cala.files import counted, shown


@options_class
class FitOptions:
    """The options of `cala fit` that `cala.fit` takes."""

    encoder: str = typer.Option(
        "efficientnet-lite0", help="One that `cala encoders` lists, or a file from `cala train`."
    )
    method: str = typer.Option("auto", help="One that `cala methods` lists.")
    metric: str | None = typer.Option(None, help="cosine or whitened (default: the method's own).")
    expect: int | None = typer.Option(
        None, min=1, help="How many classes you will add in all (default: 2/3 of the known ones)."
    )
    objective: str = typer.Option("accuracy", help="accuracy or harmonic: see `cala tune`.")
    max_base_loss: float | None = typer.Option(
        None, help="How much accuracy known classes may lose, such as 0.01."
    )
    reject: float = typer.Option(
        0.05, help="Fraction of photos of known classes that may be called unknown."
    )
    fakes: str = typer.Option(
        "image",
        help="How to make fake classes: image mixes up to 2,000 photos, a number up to that many, "
        "feature mixes embeddings.",
    )
    tta: str = typer.Option("none", help="flip: use the mirror image of each photo too.")
    shot_views: int = SHOT_VIEWS
    adapt: float = typer.Option(
        0,
        min=0,
        help="First adapt the encoder to these photos for this many minutes of processor time; "
        "the result is used only if it improves on held-out photos.",
    )
    seed: int = typer.Option(0, min=0, help="Seed of the mixed images and the adapter's training.")
    skip_bad: bool = SKIP_BAD
    keep_thumbnails: bool = KEEP_THUMBNAILS
    device: str = DEVICE


@with_options
def fit(
    photos: Path = typer.Argument(..., help="A folder with one folder of photos per class."),
    out: Path = typer.Option(..., "-o", "--out", help="The model: a folder to create."),
    *,
    options: FitOptions,
    as_json: bool = AS_JSON,
    quiet: bool = QUIET_HINTS,
) -> None:
    """Learn the classes you have: one folder of photos per class.

    Photos are encoded once and not kept. If it is stopped, run the same command again to resume.

    Example: cala fit photos/known/ -o birds
    """
    with skip_bad_hint(), progress_bar("photos and mixed images", quiet) as advance:
        model = cala.fit(photos, out, **vars(options), advance=advance)
    if as_json:
        summary = {
            "model": str(out),
            "version": 1,
            "classes": len(model.classes),
            "photos": len(model.current.photos),
            "notes": [str(one) for one in model.notes],
        }
        typer.echo(json.dumps(summary))
        return
    for one in model.notes:
        note(str(one))
    typer.echo(
        f"{shown(out)}: {len(model.classes)} classes from {len(model.current.photos):,} photos "
        f"({model.current.encoder.uri}, {options.method})"
    )
    if not quiet:
        typer.echo(f"next: cala add {shown(out)} NEW_PHOTOS, or cala predict {shown(out)} PHOTO")


@with_options
def add(
    model: Path = MODEL,
    photos: list[Path] = typer.Argument(
        ..., help="A folder with one folder per class, or photos with --as."
    ),
    name: str | None = typer.Option(None, "--as", help="The class that these photos show."),
    skip_bad: bool = SKIP_BAD,
    keep_thumbnails: bool = KEEP_THUMBNAILS,
    *,
    options: LoadOptions,
) -> None:
    """Teach new classes, or give a known class more photos.

    Other classes do not change. A photo that the model has already learned from is not counted
    again.

    Examples: cala add birds photos/new/ · cala add birds img*.jpg --as kingfisher
    """
    from cala.model.photos import find_files, labelled_files

    opened = options.open(model)
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
    with skip_bad_hint(), counting("looking at photos", len(paths), options.quiet) as count:
        added = opened.add(
            paths, names, skip_bad=skip_bad, keep_thumbnails=keep_thumbnails, advance=count
        )
    if options.as_json:
        typer.echo(json.dumps({"model": str(model), **vars(added), "notes": notes}))
        return
    for text in (*notes, *(f"left out {bad}" for bad in added.skipped)):
        note(text)
    for label, other in added.alike.items():
        note(
            f"'{shown(label)}' is a new class beside '{shown(other)}'; if you meant the latter, "
            f"run `cala undo {shown(model)}` and add the photos to '{shown(other)}'"
        )
    if added.again:
        note(f"{added.again} photos were known already and were not counted again")
    if not added.photos:
        typer.echo(f"{shown(model)}: nothing new")
        return
    for label, photos_ in added.photos.items():
        new = label in added.new
        amount = counted(photos_, "photo" if new else "more photo")
        typer.echo(f"{shown(label)}: {'new class, ' * new}{amount}")
    if not options.quiet:
        typer.echo(
            f"{shown(model)} knows {len(opened.classes)} classes now (version {added.version}); "
            f"`cala undo {shown(model)}` goes back"
        )
