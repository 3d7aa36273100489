"""The `cala` command. One file per group; torch is imported inside the commands that need it."""

from __future__ import annotations

import errno
import io
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
    doctor,
    encode,
    evaluate,
    export,
    fit,
    frigate,
    lists,
    manage,
    predict,
    report,
    run,
    serve,
    sort,
    train,
    watch,
)
from cala.errors import CacheWarning, CalaError, EngineWarning
from cala.files import reason, shown

_python_format = warnings.formatwarning
#: Commands that do not repeat what they have finished; `train` has a message of its own.
RESUMES = ("ablate", "add", "encode", "eval", "fit", "predict", "run")
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
    fit.fit, fit.add, fit.reject, fit.refit, predict.predict, sort.sort, evaluate.evaluate,
    manage.show, manage.undo, manage.redo, manage.forget, manage.rename, manage.merge,
    manage.tune, export.export, serve.serve, watch.watch, frigate.frigate, run.run,
    compare.compare, run.ablate, report.report, train.train, encode.encode, lists.methods,
    lists.datasets, doctor.doctor,
):  # fmt: skip
    app.command(name="eval" if _command is evaluate.evaluate else None)(_command)
app.add_typer(lists.encoders_app, name="encoders")
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
    if issubclass(category, CacheWarning | EngineWarning):
        return f"note: {message}\n"
    return _python_format(message, category, filename, lineno, line)


def _interrupted(arguments: list[str]) -> str:
    """What to say after Ctrl-C.

    >>> _interrupted(["run", "cifar100"]), _interrupted(["show", "birds"])
    ('interrupted; rerun the same command to resume', 'interrupted')
    """
    command = next((word for word in arguments if not word.startswith("-")), "")
    return "interrupted" + "; rerun the same command to resume" * (command in RESUMES)


def _never_unprintable() -> None:
    """What the encoding of a pipe or an old terminal lacks, such as β, is printed escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def main() -> None:
    """Entry point: a user's error is one line and exit code 2, never a traceback."""
    _never_unprintable()
    warnings.formatwarning = _format_warning
    first = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, _stop) if first else None
    try:
        app()
    except CalaError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        if error.errno is None:  # no fault of the machine
            raise
        where = f" for {shown(error.filename)}" if error.filename else ""
        full = "free some space or choose another folder"
        fix = full if error.errno in FULL else "check the disk, permissions and open files"
        typer.echo(f"error: {reason(error)}{where}: {fix}, then run the command again", err=True)
        sys.exit(2)
    except (KeyboardInterrupt, Stopped):
        typer.echo(_interrupted(sys.argv[1:]), err=True)
        sys.exit(130)
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
