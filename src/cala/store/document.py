"""The JSON document of one version: its checksum, and what is said when it cannot be trusted."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from cala.errors import InputError
from cala.files import reason, shown, write_bytes

FORMAT = 1
FIELDS = {
    "format": int,
    "version": int,
    "meta": dict,
    "blobs": dict,
    "journal": list,
    "undo": list,
    "redo": list,
}

Document = dict[str, Any]


class NewerFormatError(InputError):
    """A model of a later version of this program: nothing is wrong with it."""


def write_document(path: Path, document: Document) -> None:
    """Write it in one step, with its checksum."""
    sealed = {**document, "checksum": checksum(document)}
    write_bytes(path, json.dumps(sealed, indent=1).encode())


def read_document(path: Path) -> Document:
    """The document in a file; anything that `write_document` did not write is refused."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, reason(error)) from error
    if not isinstance(found, dict):
        raise _damaged(path, "it is no JSON object")
    form = found.get("format")
    if isinstance(form, int) and form > FORMAT:
        raise NewerFormatError(
            f"{shown(path)} was written by a newer cala (format {form}, this one reads {FORMAT}): "
            "use that one"
        )
    seal = found.pop("checksum", None)
    if seal != checksum(found):
        raise _damaged(path, "its checksum does not fit: it was edited by hand, or a byte is wrong")
    wrong = [name for name, kind in FIELDS.items() if not isinstance(found.get(name), kind)]
    if wrong or form != FORMAT:
        raise _damaged(path, f"it has no usable {wrong[0] if wrong else 'format'}")
    return found


def checksum(document: Document) -> str:
    """SHA-256 of the values, whatever the layout of the text."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _damaged(path: Path, why: str) -> InputError:
    return InputError(
        f"{shown(path)} cannot be used ({why}): put back a copy of it, or go back to the last "
        "version that is whole with `cala undo`"
    )
