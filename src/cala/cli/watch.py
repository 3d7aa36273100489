"""`cala watch`: photos that arrive in a folder."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from cala.cli.options import with_options
from cala.cli.photos import MODEL, REJECT, LoadOptions, likely, note
from cala.errors import InputError
from cala.files import counted, shown


@with_options
def watch(
    model: Path = MODEL,
    inbox: Path = typer.Argument(..., help="The folder in which photos arrive, at any depth."),
    sort: Path | None = typer.Option(
        None, "--sort", metavar="FOLDER", help="Sort photos into one folder per class in here."
    ),
    link: bool = typer.Option(False, "--link", help="Make hard links, which need no space."),
    move: bool = typer.Option(False, "--move", help="Move photos instead of copying them."),
    lines: Path | None = typer.Option(
        None,
        "--lines",
        metavar="FILE",
        help="Append one JSON line per photo to this file (default: cala-watch.jsonl in the "
        "folder of --sort).",
    ),
    every: float = typer.Option(2.0, min=0.05, help="Seconds between two looks at the folder."),
    once: bool = typer.Option(False, "--once", help="Recognise what is there, and end."),
    reject: float | None = REJECT,
    *,
    options: LoadOptions,
) -> None:
    """Recognise photos as they arrive in a folder, each once.

    A photo is complete if it has not changed between two looks; temporary and hidden files are
    ignored. Ctrl-C ends it; the same command continues, also after a crash. `cala sort --undo`
    takes back what was sorted.

    Examples: cala watch birds inbox/ --sort sorted/ --move · cala watch birds inbox/ --lines
    answers.jsonl --once
    """
    if sort is None and lines is None:
        raise InputError(
            "nothing would be kept", "give --sort FOLDER or --lines FILE", field="sort"
        )
    if (link or move) and (sort is None or (link and move)):
        fix = "give one of them, with --sort FOLDER"
        raise InputError("--link and --move say how to sort", fix, field="link")
    from cala.connections.running import stop_signals
    from cala.connections.watch import LEDGER, Watcher
    from cala.files import quoted
    from cala.storage import locked_folder

    opened = options.open(model)
    ledger = lines if lines is not None else Path(str(sort), LEDGER)
    action = "link" if link else "move" if move else "copy"
    with stop_signals() as stop, locked_folder(ledger.parent, f".{ledger.name}.lock"):
        watcher = Watcher(opened, inbox, ledger, out=sort, action=action, reject=reject, say=note)
        if not options.quiet:
            typer.echo(f"watching {shown(inbox)}; Ctrl-C ends it", err=True)
        count = 0
        for entry in watcher.run(every, stop, once):
            count += "error" not in entry
            path = entry["image"]
            if options.as_json:
                typer.echo(json.dumps(entry))
            elif "error" in entry:
                typer.echo(f"error: {shown(path)}: {entry['error']}", err=True)
            else:
                sure = "" if entry["label"] == "unknown" else f" {likely(entry['probability'])}"
                typer.echo(f"{shown(entry['label'])}{sure}  {shown(path)}")
    if not options.quiet:
        about = f"; `cala sort --undo {quoted(sort)}` takes it back" if sort and count else ""
        typer.echo(f"{counted(count, 'photo')} recognised{about}", err=True)
    if once and watcher.waiting:
        note(f"{counted(watcher.waiting, 'file')} still changing: run the command again")
