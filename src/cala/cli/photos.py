"""Options and messages that the commands for your own photos share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

import cala
from cala.cli.options import AS_JSON, DEVICE, options_class
from cala.errors import InputError

MODEL = typer.Argument(..., help="The model: the folder that `cala fit` created.")
SKIP_BAD = typer.Option(False, "--skip-bad", help="Skip photos that cannot be read.")
KEEP_THUMBNAILS = typer.Option(
    False, "--keep-thumbnails", help="Store small copies of the photos beside the model."
)
ENCODER = typer.Option(None, help="Where the model's encoder is, if it has moved.")
TRUST = typer.Option(
    None,
    metavar="NAME",
    help="Allow the model to import this torch: encoder, which runs its code; cala remembers it.",
)
QUIET_HINTS = typer.Option(False, "--quiet", "-q", help="Print no progress and no hints.")
REJECT = typer.Option(
    None,
    help="Fraction of photos of known classes that may be called unknown (default: the model's).",
)


@options_class
class LoadOptions:
    """How a command opens a model, and what it prints."""

    encoder: str | None = ENCODER
    trust_encoder: str | None = TRUST
    device: str = DEVICE
    as_json: bool = AS_JSON
    quiet: bool = QUIET_HINTS

    def open(self, path: Path) -> cala.Model:
        given = {"encoder": self.encoder, "trust_encoder": self.trust_encoder}
        return cala.load(path, device=self.device, **given)


def note(text: str) -> None:
    """Print something that the user should know, on stderr."""
    typer.echo(f"note: {text}", err=True)


@contextmanager
def skip_bad_hint(after: str = "") -> Iterator[None]:
    """Add to an error about a photo how to go on without it; `after` is what to do first."""
    from cala.data.decoding import ImageError

    try:
        yield
    except ImageError as error:
        raise bad_photo(str(error), after) from error


def bad_photo(detail: str, after: str = "") -> Exception:
    fix = f"fix or remove it, or skip it with --skip-bad{after}"
    return InputError(detail, fix, code="bad_image")


def percent(share: float) -> str:
    """A fraction for people; a dash for NaN.

    >>> percent(0.4567), percent(float("nan"))
    ('45.7 %', '–')
    """
    return "–" if share != share else f"{100 * share:.1f} %"
