"""The `cala` command. One file per group; torch is imported inside the commands that need it."""

from __future__ import annotations

import sys

import typer

from cala import __version__
from cala.cli import (
    cache,
    data,
    encode,
    evaluate,
    export,
    fit,
    lists,
    manage,
    predict,
    report,
    run,
    train,
)
from cala.errors import CalaError

app = typer.Typer(
    name="cala",
    help="Teach a frozen vision model new classes from a handful of images.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"cala {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and stop."
    ),
) -> None:
    """Teach a frozen vision model new classes from a handful of images."""


for group in (fit, predict, evaluate, manage, export):
    group.register(app)
run.register(app)
report.register(app)
train.register(app)
encode.register(app)
lists.register(app)
app.add_typer(data.app, name="data")
app.add_typer(cache.app, name="cache")


def main() -> None:
    """Entry point: an error of the user's is one line and exit code 2, never a traceback."""
    try:
        app()
    except CalaError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command continues where it stopped", err=True)
        sys.exit(130)
