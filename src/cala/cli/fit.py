"""`cala fit` and `cala add`: a model from your own photos, and more classes for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import cala
from cala.cli.options import AS_JSON, DEVICE, ENGINE, SHOT_VIEWS, options_class, with_options
from cala.cli.photos import (
    DETAILS,
    KEEP_THUMBNAILS,
    MODEL,
    MORE_THUMBNAILS,
    QUIET_HINTS,
    SKIP_BAD,
    STRICT,
    LoadOptions,
    about_left_out,
    note,
    skip_bad_hint,
)
from cala.cli.quality import chosen, print_estimate
from cala.files import counted, quoted, shown
from cala.progress import busy, counting, progress_bar

if TYPE_CHECKING:
    from cala.data.formats import LeftOut
    from cala.model.version import Note


@options_class
class FitOptions:
    """The options of `cala fit` that `cala.fit` takes."""

    encoder: str = typer.Option(
        "efficientnet-lite0", help="One that `cala encoders` lists, or a file from `cala train`."
    )
    method: str = typer.Option("auto", help="One that `cala methods` lists.")
    metric: str | None = typer.Option(None, help="cosine or whitened (default: the method's).")
    expect: int | None = typer.Option(
        None, min=1, help="How many classes you will add in all (default: 2/3 of the known ones)."
    )
    objective: str = typer.Option("accuracy", help="accuracy or harmonic; see `cala tune`.")
    max_base_loss: float | None = typer.Option(
        None, help="Most accuracy that known classes may lose, such as 0.01."
    )
    reject: float = typer.Option(
        0.05, help="Fraction of photos of known classes that may be called unknown."
    )
    fakes: str = typer.Option(
        "image",
        help="What to rehearse new classes with: image (up to 2,000 mixed photos), a number (that "
        "many at most), or feature (mixed embeddings, faster).",
    )
    tta: str = typer.Option("none", help="flip: use the mirror image of each photo too.")
    shot_views: int = SHOT_VIEWS
    adapt: float = typer.Option(
        0,
        min=0,
        help="First adapt the encoder to these photos for this many minutes of processor time; "
        "the result is used only if it improves on held-out photos.",
    )
    seed: int = typer.Option(0, min=0, help="Seed for everything random in training.")
    skip_bad: bool = SKIP_BAD
    strict: bool = STRICT
    keep_thumbnails: bool = KEEP_THUMBNAILS
    device: str = DEVICE
    engine: str = ENGINE


@with_options
def fit(
    photos: Path = typer.Argument(..., help="A folder with one folder of photos per class."),
    out: Path = typer.Option(..., "-o", "--out", help="The model: a folder to create."),
    *,
    options: FitOptions,
    details: bool = DETAILS,
    as_json: bool = AS_JSON,
    quiet: bool = QUIET_HINTS,
) -> None:
    """Learn the classes you have: one folder of photos per class.

    Photos are encoded once; the model keeps their embeddings and small copies. If it is stopped,
    run the same command again to resume.

    Example: cala fit photos/known/ -o birds
    """
    said: list[str] = []

    def say(one: Note) -> None:
        said.append(str(one))
        if not as_json:
            note(str(one))

    with skip_bad_hint(), progress_bar("photos and mixed images", quiet) as advance:
        model = cala.fit(photos, out, **vars(options), advance=advance, notify=say)
    if as_json:
        summary = {
            "model": str(out),
            "version": 1,
            "classes": len(model.classes),
            "photos": len(model.current.photos),
            "notes": [str(one) for one in model.notes],
            "estimate": model.estimate().to_json(),
        }
        typer.echo(json.dumps(summary))
        return
    for one in model.notes:
        if str(one) not in said:
            note(str(one))
    photos_ = counted(len(model.current.photos), "photo")
    typer.echo(f"{shown(out)}: {len(model.classes)} classes from {photos_}")
    if details:
        typer.echo(f"encoder {shown(model.current.encoder.uri)}, method {options.method}")
    if not quiet:
        if said_choice := chosen(model.current.classifier.report_, details):
            typer.echo(said_choice)
        print_estimate(model.estimate(), out)
        typer.echo(f"next: cala add {quoted(out)} NEW_PHOTOS, or cala predict {quoted(out)} PHOTO")


@with_options
def add(
    model: Path = MODEL,
    photos: list[Path] = typer.Argument(
        ..., help="A folder with one folder per class, or photos with --as."
    ),
    name: str | None = typer.Option(None, "--as", help="The class that these photos show."),
    skip_bad: bool = SKIP_BAD,
    strict: bool = STRICT,
    keep_thumbnails: bool | None = MORE_THUMBNAILS,
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
    left_out: list[LeftOut] = []
    if name is not None:
        paths = find_files(photos, left_out)
        names = [name] * len(paths)
    else:
        paths, names = [], []
        for folder in photos:
            found, labels = labelled_files(folder, notes=notes, left_out=left_out)
            paths += found
            names += labels
    notes += about_left_out(left_out, len(paths), strict)
    if not options.as_json:
        for text in notes:
            note(text)
    with skip_bad_hint(), counting("looking at photos", len(paths), options.quiet) as count:
        added = opened.add(
            paths,
            names,
            skip_bad=skip_bad,
            strict=strict,
            keep_thumbnails=keep_thumbnails,
            advance=count,
        )
    if options.as_json:
        told = {"model": str(model), **vars(added), "notes": notes}
        typer.echo(json.dumps({**told, "estimate": opened.estimate(quick=True).to_json()}))
        return
    for bad in added.skipped:
        note(f"left out {bad}")
    for label, other in added.alike.items():
        note(
            f"'{shown(label)}' is a new class beside '{shown(other)}'; if you meant the latter, "
            f"run `cala undo {quoted(model)}` and add the photos to '{shown(other)}'"
        )
    for label, now in added.renamed.items():
        note(f"'{shown(label)}' is called '{shown(now)}' now: its photos are counted there")
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
            f"`cala undo {quoted(model)}` goes back"
        )
        print_estimate(opened.estimate(quick=True), model, set(added.photos))
        if opened.current.refit_pays():
            typer.echo(
                f"hint: more was added than it was fitted on; `cala refit {quoted(model)}` learns "
                "again from all photos"
            )


@with_options
def refit(model: Path = MODEL, *, options: LoadOptions) -> None:
    """Learn again from all photos that were added.

    The photos themselves are not needed. After many additions this recognises more of them, since
    what `fit` learned rests on its own photos alone. All classes are known classes from then on.

    Example: cala refit birds
    """
    opened = options.open(model)
    with busy("learning again from all photos", options.quiet):
        before = opened.estimate(quick=True).share()
        after = opened.refit().estimate(quick=True)
    if options.as_json:
        told = {"model": str(model), "version": opened.version, "classes": opened.classes}
        notes = [str(one) for one in opened.notes]
        told |= {"before": before.to_json(), "estimate": after.to_json(), "notes": notes}
        typer.echo(json.dumps(told))
        return
    for one in opened.notes:
        note(str(one))
    photos = counted(len(opened.current.photos), "photo")
    typer.echo(
        f"{shown(model)} knows {len(opened.classes)} classes from {photos} (version "
        f"{opened.version}); `cala undo {quoted(model)}` goes back"
    )
    if not options.quiet:
        if said_choice := chosen(opened.current.classifier.report_):
            typer.echo(said_choice)
        print_estimate(after, model, was=before)


@with_options
def reject(
    model: Path = MODEL,
    photos: list[Path] = typer.Argument(..., help="Photos, or folders of them."),
    strict: bool = STRICT,
    *,
    options: LoadOptions,
) -> None:
    """Learn photos of none of the classes, as examples of unknown.

    They do not become a class; photos like them are called unknown more often.

    Example: cala reject birds photos/other/
    """
    from cala.model.photos import find_files

    opened = options.open(model)
    left_out: list[LeftOut] = []
    paths = find_files(photos, left_out)
    notes = about_left_out(left_out, len(paths), strict)
    with skip_bad_hint(), counting("looking at photos", len(paths), options.quiet) as count:
        opened.reject(paths, strict=strict, advance=count)
    total = len(opened.current.classifier.rejection_.rejected)
    if options.as_json:
        told = {"model": str(model), "version": opened.version, "rejected": total, "notes": notes}
        typer.echo(json.dumps(told))
        return
    for text in notes:
        note(text)
    if not opened.current.can_reject():
        note("the model cannot call anything unknown: fit it again, with more photos")
    typer.echo(
        f"{shown(model)} has {counted(total, 'rejected photo')}; "
        f"`cala undo {quoted(model)}` goes back"
    )
