"""`cala show`, `undo`, `redo`, `forget`, `rename`, `merge`, `tune`: all that needs no photo."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import cala
from cala.cli.options import AS_JSON
from cala.cli.photos import DETAILS, MODEL, REJECT, note, padded, percent, width_of
from cala.cli.quality import chosen, print_curve, print_moved, print_photos
from cala.files import quoted, shown

if TYPE_CHECKING:
    from cala.model import Model


def show(
    model: Path = MODEL,
    photos: bool = typer.Option(
        False, "--photos", help="List the photos of each class, and which look wrong there."
    ),
    curve: bool = typer.Option(
        False, "--curve", help="Show what more photos of each class have brought so far."
    ),
    details: bool = DETAILS,
    as_json: bool = AS_JSON,
) -> None:
    """List a model's classes as they arrived, and every change.

    With --details, β is what is added to the logit of a new class, and the closest class has the
    cosine of the two.

    Examples: cala show birds · cala show birds --photos · cala show birds --curve
    """
    from cala.model.estimate import photo_json
    from cala.model.overview import overview

    opened = cala.load(model)
    found = overview(opened)
    if as_json:
        if photos:
            judged = opened.estimate()
            found["photos"] = [photo_json(one) for one in judged.photos]
            found["unjudged"] = [asdict(one) for one in judged.unjudged]
        if curve:
            found["curve"] = [asdict(one) for one in opened.learning_curve()]
        typer.echo(json.dumps(found))
    elif curve:
        print_curve(opened.learning_curve())
    elif photos:
        print_photos(opened.estimate(), {one["name"]: one["photos"] for one in found["classes"]})
    else:
        _print(found, details)


def undo(
    model: Path = MODEL,
    redo: bool = typer.Option(False, "--redo", help="Reverse the last undo instead."),
    as_json: bool = AS_JSON,
) -> None:
    """Undo the last change; repeat to go further back.

    If the newest version is damaged, this goes back to the last intact one.

    Example: cala undo birds
    """
    _step(model, "redo" if redo else "undo", as_json)


def redo(model: Path = MODEL, as_json: bool = AS_JSON) -> None:
    """Bring back the change that was undone last.

    It is lost once something else has been changed.

    Example: cala redo birds
    """
    _step(model, "redo", as_json)


def _step(model: Path, action: str, as_json: bool) -> None:
    from cala.store import Store

    store = Store(model)  # which can go back even where the present version is damaged
    getattr(store, action)()
    _report(cala.load(model).cleared(), action, as_json)
    if action == "undo" and not as_json and store.present().redo:
        typer.echo(f"`cala redo {quoted(model)}` brings it back")


def forget(
    model: Path = MODEL,
    name: str = typer.Argument(..., help="The class to remove."),
    photo: str | None = typer.Option(
        None, help="Remove this photo of the class only, by its name in `cala show --photos`."
    ),
    as_json: bool = AS_JSON,
) -> None:
    """Remove a class, or one of its photos.

    Other classes do not change.

    Examples: cala forget birds kingfisher · cala forget birds robin --photo IMG_3.jpg
    """
    _report(cala.load(model).forget(name, photo=photo), "forget", as_json)


def rename(
    model: Path = MODEL,
    old: str = typer.Argument(..., help="Its current name."),
    new: str = typer.Argument(..., help="Its new name; no other class may have it."),
    as_json: bool = AS_JSON,
) -> None:
    """Rename a class.

    Example: cala rename birds kingfisher "common kingfisher"
    """
    _report(cala.load(model).rename(old, new), "rename", as_json)


def merge(
    model: Path = MODEL,
    old: str = typer.Argument(..., help="The class that goes."),
    into: str = typer.Argument(..., help="The class that gets its photos."),
    as_json: bool = AS_JSON,
) -> None:
    """Move all photos of one class to another.

    Use it if a name was spelt in two ways.

    Example: cala merge birds "king fisher" kingfisher
    """
    _report(cala.load(model).merge(old, into), "merge", as_json)


def tune(
    model: Path = MODEL,
    objective: str | None = typer.Option(
        None, help="accuracy: get most photos right; harmonic: treat known and new classes alike."
    ),
    max_base_loss: float | None = typer.Option(
        None, help="Favour new classes while known classes lose at most this accuracy."
    ),
    delta: float | None = typer.Option(
        None, help="Favour all new classes by this much; below 0, known ones."
    ),
    reject: float | None = REJECT,
    as_json: bool = AS_JSON,
) -> None:
    """Favour known or new classes, without any photos.

    Examples: cala tune birds --objective harmonic · cala tune birds --max-base-loss 0.01
    """
    from cala.model.estimate import moved

    opened = cala.load(model)
    before = opened.current
    opened.tune(objective=objective, max_base_loss=max_base_loss, delta=delta, reject=reject)
    given = (objective, max_base_loss, delta)
    found = moved(before, opened.current) if any(v is not None for v in given) else None
    _report(opened, "tune", as_json, {"moved": asdict(found)} if found else {})
    if not as_json and any(v is not None for v in given):
        print_moved(found)
    if not as_json and reject is not None:
        typer.echo(
            f"about {_percent(reject)} of photos of its classes may be called unknown "
            f"(was {_percent(before.reject)})"
        )


def _report(opened: Model, action: str, as_json: bool, more: dict[str, Any] | None = None) -> None:
    from cala.model.overview import described

    path, version, classes = opened.path, opened.version, opened.classes
    if as_json:
        summary = {"model": str(path), "version": version, "classes": classes}
        typer.echo(json.dumps({"action": action, **summary, **(more or {})}))
        return
    done = described(opened.history())[-1][1]
    typer.echo(f"{shown(done)}; {shown(path)} knows {len(classes)} classes (version {version})")


_POINTS = {
    "accuracy": "as many photos right as possible",
    "harmonic": "known and new classes are treated alike",
}


def _percent(share: float) -> str:
    """A rate that the user has set.

    >>> _percent(0.05), _percent(0.125)
    ('5 %', '12.5 %')
    """
    return f"{100 * share:.4g} %"


def _local(time: str) -> str:
    """A time of the journal, which is in UTC, by the clock of this machine."""
    try:
        return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return shown(time)[:16]


def _print(found: dict[str, Any], details: bool) -> None:
    classes, encoder, settings = found["classes"], found["encoder"], found["settings"]
    loss = settings["max_base_loss"]
    point = _POINTS[settings["objective"]]
    if loss is not None:
        point = f"new classes are favoured while known classes may lose {percent(loss)}"
    typer.echo(f"{shown(found['model'])}, version {found['version']}: {len(classes)} classes")
    rate = _percent(settings["reject"])
    typer.echo(f"{point}; about {rate} of photos of its classes may be called unknown")
    if details:
        typer.echo(f"encoder {shown(encoder['uri'])}, method {settings['method']}")
    if said := chosen(settings["report"], details):
        typer.echo(said)
    width = min(40, max(5, *(width_of(shown(one["name"])) for one in classes)))
    typer.echo(f"\n{'class':{width}}  kind   photos  {'     β  ' * details}most like")
    for one in classes:
        beta = f"{one['shift']:+.2f}" if one["kind"] == "new" else ""
        near = one["closest"]
        closest = shown(near["name"]) + (f" ({near['cosine']:.2f})" if details else "")
        typer.echo(
            f"{padded(shown(one['name']), width)}  {one['kind']:5}  {one['photos']:6,}  "
            f"{f'{beta:>6}  ' * details}{closest}"
        )
    typer.echo("\nhistory:")
    for entry in found["history"]:
        typer.echo(f"  {entry['version']:>3}  {_local(entry['time'])}  {shown(entry['text'])}")
    for text in found["notes"]:
        note(f"when it was made: {text}")
