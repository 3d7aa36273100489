"""Options that the commands for your own photos share, and how they speak."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

MODEL = typer.Argument(..., help="The model: the folder that `cala fit` made.")
SKIP_BAD = typer.Option(False, "--skip-bad", help="Leave out photos that cannot be read.")
THUMBNAILS = typer.Option(
    False, "--keep-thumbnails", help="Store small copies of the photos beside the model."
)
ENCODER = typer.Option(
    None, help="Where the model's encoder is, if it has moved.", show_default=False
)
TRUST = typer.Option(
    None,
    metavar="NAME",
    help="Allow a model to import this torch: encoder, which runs its code; remembered.",
    show_default=False,
)
DEVICE = typer.Option("auto", help="cpu, cuda, cuda:1, mps or auto.")
AS_JSON = typer.Option(False, "--json", help="Print the result for machines.")
QUIET = typer.Option(False, "--quiet", "-q", help="No progress, no hints.")


def note(text: str) -> None:
    """Something the user should know, on the error stream."""
    typer.echo(f"note: {text}", err=True)


@contextmanager
def photos_named() -> Iterator[None]:
    """An error about a photo says how to go on without it."""
    from cala.data.decoding import ImageError
    from cala.errors import InputError

    try:
        yield
    except ImageError as error:
        raise InputError(
            f"{error}. Mend or remove it, or leave out such photos with --skip-bad"
        ) from error


def percent(share: float) -> str:
    """A share for people; a dash where there is none.

    >>> percent(0.4567), percent(float("nan"))
    ('45.7 %', '–')
    """
    return "–" if share != share else f"{100 * share:.1f} %"
