"""Options and messages that the commands for your own photos share."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import cala
from cala.cli.options import AS_JSON, DEVICE, ENGINE, options_class
from cala.errors import InputError
from cala.files import reason, shown, write_text
from cala.table import csv_text

if TYPE_CHECKING:
    from cala.data.formats import LeftOut

MODEL = typer.Argument(
    ..., help="The model: the folder that `cala fit` created, or hf://user/name to ask one."
)
SKIP_BAD = typer.Option(False, "--skip-bad", help="Skip photos that cannot be read.")
STRICT = typer.Option(
    False, "--strict", help="Stop if any file is left out, such as a video or a broken photo."
)
_THUMBNAILS = "--keep-thumbnails/--no-thumbnails"
KEEP_THUMBNAILS = typer.Option(
    True, _THUMBNAILS, help="Store small copies of the photos in the model's folder."
)
MORE_THUMBNAILS = typer.Option(
    None, _THUMBNAILS, help="Store small copies of the photos (default: if the model has some)."
)
ENCODER = typer.Option(None, help="Where the model's encoder is, if it has moved.")
TRUST = typer.Option(
    None,
    metavar="NAME",
    help="Allow the model to use this torch: encoder, which runs its code, or onnx-external: "
    "encoder; cala remembers it.",
)
DETAILS = typer.Option(False, "--details", help="Show the numbers behind it as well.")
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
    engine: str = ENGINE
    as_json: bool = AS_JSON
    quiet: bool = QUIET_HINTS

    def open(self, path: Path) -> cala.Model:
        given = {"encoder": self.encoder, "trust_encoder": self.trust_encoder}
        return cala.load(path, device=self.device, engine=self.engine, **given)


def note(text: str) -> None:
    """Print something that the user should know, on stderr."""
    typer.echo(f"note: {text}", err=True)


def about_left_out(left_out: Sequence[LeftOut], photos: int, strict: bool) -> list[str]:
    """What to say about files beside so many photos that are not used; an error if `strict`."""
    from cala.data.formats import left_out_note
    from cala.model.photos import check_none_left_out

    if strict:
        check_none_left_out(left_out, photos)
    return [left_out_note(left_out, photos)] if left_out else []


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


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table of text cells."""
    try:
        write_text(path, csv_text([header, *rows]))
    except (OSError, ValueError) as error:
        detail = f"{shown(path)} cannot be written ({reason(error)})"
        raise InputError(detail, "choose another", field="csv") from error


def width_of(text: str) -> int:
    """Columns that a text takes in a terminal, where CJK characters and emoji take two.

    >>> width_of("robin"), width_of("知更鸟")
    (5, 6)
    """
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def padded(text: str, width: int) -> str:
    """A text followed by blanks up to so many columns."""
    return text + " " * (width - width_of(text))


def likely(share: float) -> str:
    """A probability for people, who should not take it for certainty.

    >>> likely(0.9996), likely(0.874)
    ('over 99 %', '87 %')
    """
    return "over 99 %" if share >= 0.995 else f"{100 * share:.0f} %"


def percent(share: float) -> str:
    """A fraction for people; a dash for NaN.

    >>> percent(0.4567), percent(float("nan"))
    ('45.7 %', '–')
    """
    return "–" if share != share else f"{100 * share:.1f} %"
