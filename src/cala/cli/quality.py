"""What `cala fit`, `add`, `tune` and `show` say about how good a model is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cala.cli.photos import likely
from cala.files import counted, quoted, shown

if TYPE_CHECKING:
    from cala.model.estimate import CurvePoint, Estimate, JudgedPhoto, Moved, Share

_SIDES = ("known", "new")
NAMED = 3  # doubtful photos that `fit` and `add` name

_CHOICES = {
    "none": "classes that you add later compete with these on equal terms",
    "one": "classes that you add later get one correction for all, since they have few photos",
    "class-aware": "each class that you add later gets a correction of its own, since it has few "
    "photos",
}
_EVIDENCE = {
    "held-out classes": "tested on your own classes, left out in turn",
    "fake classes": "tested on mixed images",
    "base classes alone": "there are too few classes to test it",
}


def chosen(report: dict[str, Any], details: bool = False) -> str | None:
    """What the method `auto` has chosen, in plain words or in those of its report."""
    if report.get("shift") not in _CHOICES:
        return None
    if details:
        from cala.heads.auto import describe

        return f"chosen: {describe(report)}"  # type: ignore[arg-type]
    return f"{_CHOICES[report['shift']]} ({_EVIDENCE.get(report['evidence'], report['evidence'])})"


def print_estimate(
    found: Estimate, model: Path, only: set[str] | None = None, was: Share | None = None
) -> None:
    """Expected accuracy, classes that are easily confused, and photos to look at.

    only : classes whose photos are named; was : what was expected before
    """
    share, new = found.share(), found.share("new")
    if not share.tells:
        count = counted(len(found.photos), "photo")
        typer.echo(
            f"how good it is: too few photos to tell ({count}); give more, or try `cala eval`"
        )
    else:
        parts = f"; new classes {new}" if new.tells and new.photos < share.photos else ""
        told = was is not None and was.tells and str(was) != str(share)
        before = f" (was {was})" if told else ""
        typer.echo(
            f"expect {share} of photos to be right{before}, judged on photos left out{parts}"
        )
        if confused := found.confused():
            pairs = (f"{shown(c.first)} and {shown(c.second)}" for c in confused)
            typer.echo(f"easily confused: {', '.join(pairs)}")
    doubtful = [p for p in found.doubtful() if only is None or p.label in only]
    if doubtful:
        typer.echo("look at these photos, which may show something else:")
        for photo in doubtful[:NAMED]:
            typer.echo(f"  {shown(photo.name)}: {_doubt(photo)}")
        if len(doubtful) > NAMED:
            more = len(doubtful) - NAMED
            typer.echo(f"  and {more} more: `cala show {quoted(model)} --photos`")


def _doubt(photo: JudgedPhoto) -> str:
    label = f"in {shown(photo.label)}, "
    return label + (photo.doubt if photo.right else f"but looks like {shown(photo.answer)}")


def print_photos(found: Estimate, photos: dict[str, int]) -> None:
    """Every photo by class, with what seems wrong with it; `photos` : how many each class has."""
    for label, count in photos.items():
        own = [photo for photo in found.photos if photo.label == label]
        typer.echo(f"\n{shown(label)} ({counted(count, 'photo')})")
        for photo in sorted(own, key=lambda one: one.probability):
            said = photo.doubt and f"doubtful: {photo.doubt}"
            if not said and not photo.right:
                said = f"could be {photo.answer}"
            typer.echo(f"  {shown(photo.name)}  {shown(said)}".rstrip())
        alone = [one.name for one in found.unjudged if one.label == label]
        for name in alone:
            typer.echo(f"  {shown(name)}  cannot be judged")
        if more := count - len(own) - len(alone):
            typer.echo(f"  {counted(more, 'photo')} whose names are not kept")


def print_curve(points: Sequence[CurvePoint]) -> None:
    """A learning curve, and what the last photos brought."""
    if not points:
        typer.echo("too few photos to tell")
        return
    typer.echo("photos of each class  others that are right")
    for one in points:
        typer.echo(f"{one.photos:21}  {likely(one.right)}")
    last = points[-1]
    half = [one for one in points if 2 * one.photos <= last.photos]
    if half:
        gain = round(100 * last.right) - round(100 * half[-1].right)
        typer.echo(
            f"{last.photos} photos of each class instead of {half[-1].photos} brought {gain:+} "
            "points; doubling them once more usually brings less"
        )


def print_moved(found: Moved | None) -> None:
    """What `tune` changes."""
    if found is None:
        typer.echo("what it changes: too few photos to tell")
        return
    parts = []
    for place, (side, (before, after)) in enumerate(
        zip(_SIDES, (found.known, found.new), strict=True)
    ):
        if found.photos is None:
            about, was = f"about {after:.0%}", f"{before:.0%}"
        else:
            count = found.photos[place]
            about, was = f"{after * count:.0f} of {count:,}", f"{before * count:.0f}"
        parts.append(f"{side} classes {about} right (was {was})".replace("%", " %"))
    where = (
        "classes that were left out by `fit`"
        if found.photos is None
        else "its own photos, left out"
    )
    typer.echo(f"{', '.join(parts)}; judged on {where}")
