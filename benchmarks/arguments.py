"""Arguments that the scripts check before they start long work."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path


def whole_number(least: int):
    """For `type=`: an integer of at least `least`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is too few: give at least {least}")
        return value

    return read


def target_file(text: str) -> Path:
    """For `type=`: a file that can be written, tried now and not after minutes of work."""
    path = Path(text)
    try:
        if path.is_dir():
            raise argparse.ArgumentTypeError(f"{text} is a folder: name a file")
        if path.exists() and not os.access(path, os.W_OK):
            raise argparse.ArgumentTypeError(f"{text} cannot be written")
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise argparse.ArgumentTypeError(f"{text} cannot be written ({why})") from None
    return path


def data_file(given: Path | None, name: str) -> Path | None:
    """The embeddings file: as given, or `name` in the folder $CALA_DATA; None without either."""
    if given is not None:
        return given
    return Path(os.environ["CALA_DATA"]) / name if os.environ.get("CALA_DATA") else None
