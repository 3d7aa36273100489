"""The `cala` command. One file per group; torch is imported inside the commands that need it."""

from __future__ import annotations

import errno
import signal
import sys
import threading
import warnings

import typer

from cala import __version__
from cala.cli import (
    cache,
    compare,
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
    serve,
    train,
)
from cala.errors import CacheWarning, CalaError
from cala.files import reason, shown

_python_format = warnings.formatwarning
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

app = typer.Typer(
    name="cala",
    help="Teach a frozen vision model new classes from a handful of images.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"cala {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Teach a frozen vision model new classes from a handful of images."""


for _command in (
    fit.fit, fit.add, predict.predict, evaluate.evaluate, manage.show, manage.undo, manage.forget,
    manage.rename, manage.tune, export.export, serve.serve, run.run, compare.compare,
    run.ablate, report.report, train.train, encode.encode, lists.methods, lists.datasets,
    lists.encoders,
):  # fmt: skip
    app.command(name="eval" if _command is evaluate.evaluate else None)(_command)
app.add_typer(data.app, name="data")
app.add_typer(cache.app, name="cache")


class Stopped(BaseException):
    """Ctrl-C. The command line library would swallow KeyboardInterrupt silently."""


def _stop(*_: object) -> None:
    raise Stopped


def _format_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """Notes for the user are one line; other warnings say where they come from."""
    if issubclass(category, CacheWarning):
        return f"note: {message}\n"
    return _python_format(message, category, filename, lineno, line)


def main() -> None:
    """Entry point: a user's error is one line and exit code 2, never a traceback."""
    warnings.formatwarning = _format_warning
    first = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, _stop) if first else None
    try:
        app()
    except CalaError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        if error.errno not in FULL:
            raise
        where = f" for {shown(error.filename)}" if error.filename else ""
        fix = "free some space or choose another folder, then rerun the same command to resume"
        typer.echo(f"error: {reason(error)}{where}: {fix}", err=True)
        sys.exit(2)
    except (KeyboardInterrupt, Stopped):
        typer.echo("interrupted; rerun the same command to resume", err=True)
        sys.exit(130)
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
