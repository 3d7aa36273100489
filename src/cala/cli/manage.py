"""`cala show`, `undo`, `forget`, `rename`, `tune`: look after a model without any photo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import cala
from cala.cli.options import AS_JSON
from cala.cli.photos import MODEL, REJECT, note, percent
from cala.files import shown

if TYPE_CHECKING:
    from cala.model import Model


def show(model: Path = MODEL, as_json: bool = AS_JSON) -> None:
    """List a model's classes as they arrived, and every change.

    β is what the adapter adds to the logit of a new class; the closest class is the one with the
    most similar prototype.

    Example: cala show birds
    """
    from cala.model.overview import overview

    found = overview(cala.load(model))
    if as_json:
        typer.echo(json.dumps(found))
    else:
        _print(found)


def undo(
    model: Path = MODEL,
    redo: bool = typer.Option(False, "--redo", help="Reverse the last undo instead."),
    as_json: bool = AS_JSON,
) -> None:
    """Undo the last change; repeat to go further back.

    If the newest version is damaged, this goes back to the last intact one.

    Example: cala undo birds
    """
    from cala.store import Store

    store = Store(model)
    if redo:
        store.redo()
    else:
        store.undo()
    _report(cala.load(model).cleared(), "redo" if redo else "undo", as_json)


def forget(
    model: Path = MODEL,
    name: str = typer.Argument(..., help="The class to remove."),
    as_json: bool = AS_JSON,
) -> None:
    """Remove a class; the others do not change.

    Example: cala forget birds kingfisher
    """
    _report(cala.load(model).forget(name), "forget", as_json)


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


def tune(
    model: Path = MODEL,
    objective: str | None = typer.Option(
        None, help="accuracy: get most photos right; harmonic: treat known and new classes alike."
    ),
    max_base_loss: float | None = typer.Option(
        None, help="Favour new classes while known classes lose at most this accuracy."
    ),
    delta: float | None = typer.Option(None, help="Value to add to the logits of all new classes."),
    reject: float | None = REJECT,
    as_json: bool = AS_JSON,
) -> None:
    """Favour known or new classes, without any photos.

    Examples: cala tune birds --objective harmonic · cala tune birds --max-base-loss 0.01
    """
    opened = cala.load(model).tune(
        objective=objective, max_base_loss=max_base_loss, delta=delta, reject=reject
    )
    _report(opened, "tune", as_json)


def _report(opened: Model, action: str, as_json: bool) -> None:
    from cala.model.overview import described

    path, version, classes = opened.path, opened.version, opened.classes
    if as_json:
        summary = {"model": str(path), "version": version, "classes": classes}
        typer.echo(json.dumps({"action": action, **summary}))
        return
    done = described(opened.history())[-1][1]
    typer.echo(f"{shown(done)}; {shown(path)} knows {len(classes)} classes (version {version})")


def _print(found: dict[str, Any]) -> None:
    from cala.heads.auto import describe

    classes, encoder, settings = found["classes"], found["encoder"], found["settings"]
    loss = settings["max_base_loss"]
    point = settings["objective"] if loss is None else f"known classes may lose {percent(loss)}"
    typer.echo(f"{shown(found['model'])}, version {found['version']}: {len(classes)} classes")
    method, rate = settings["method"], settings["reject"]
    typer.echo(f"{shown(encoder['uri'])}, {method}, {point}, unknown at {rate}")
    if settings["report"]:
        typer.echo(f"chosen: {describe(settings['report'])}")
    width = min(40, max(5, *(len(shown(one["name"])) for one in classes)))
    typer.echo(f"\n{'class':{width}}  kind   photos       β  closest class")
    for one in classes:
        beta = f"{one['shift']:+.2f}" if one["kind"] == "new" else ""
        near = one["closest"]
        closest = f"{shown(near['name'])} ({near['cosine']:.2f})" if near else ""
        typer.echo(
            f"{shown(one['name']):{width}}  {one['kind']:5}  {one['photos']:6,}  {beta:>6}  "
            f"{closest}"
        )
    typer.echo("\nhistory (times in UTC):")
    for entry in found["history"]:
        typer.echo(f"  {entry['version']:>3}  {entry['time'][:16]}  {shown(entry['text'])}")
    for text in found["notes"]:
        note(f"when it was made: {text}")
