"""The files of a store: a JSON document per version, and groups of arrays named by their SHA-256.

A document has these fields; others are carried along, so that a later cala may add some:

    format, version, checksum
    meta            what a person wants to know: classes, encoder, settings, notes
    blobs           group of arrays -> SHA-256 of its file
    journal         every change, oldest first
    undo, redo      numbers of the versions that undo and redo go to
    like, origin    after an undo: the version it went to, and the one whose content that is

Groups of a model are `base`, `classes`, `photos` (`digest`, `owner`), and `embeddings` and
`embeddings_new` (`digest` (n, 32), `rows` (n, d), `names` as JSON text) of photos of known and of
new classes, to judge photos or take one out. One more is reserved, and kept as it is by versions
that do not use it: `rejected` (`digest` (n, 32)), photos that a user has turned down.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from typing import Any

from cala import storage
from cala.core.rows import Array
from cala.errors import DamagedFile, InputError
from cala.files import check_size, sha256, sha256_of, shown, write_bytes
from cala.storage import FILE_KINDS, json_object, newer

FORMAT, FIX = FILE_KINDS["model"].version, FILE_KINDS["model"].fix
_SUFFIX = ".safetensors"
#: Fields that every document has.
FIELDS = ("format", "version", "meta", "blobs", "journal", "undo", "redo")

Group = dict[str, Array]
Document = dict[str, Any]


def own_files(pattern: str) -> re.Pattern[str]:
    """Names of files that a store writes, and of what its killed writers leave behind."""
    return re.compile(rf"{pattern}|\.(?:{pattern})\.[0-9a-f]{{16}}\.tmp")


BLOBS = own_files(rf"[0-9a-f]{{64}}\{_SUFFIX}")
HISTORY = own_files(r"\d{6,}(?:\.undone)?\.json")
VERSION_FILE = re.compile(r"\d{6,}(?:\.undone)?\.json")


def check_not_linked(folder: Path) -> None:
    """Raise for a symbolic link: what a store deletes must be its own."""
    if folder.is_symlink():
        raise InputError(
            f"{shown(folder)} is a symbolic link",
            "replace it with the folder that it points to",
            code="linked_folder",
        )


def delete_own(folder: Path, own: re.Pattern[str], keep: Container[str] = ()) -> None:
    """Delete the files of a store in a folder but for those to keep; files of others stay."""
    for path in folder.iterdir():
        if own.fullmatch(path.name) and path.name not in keep:
            with suppress(OSError):
                path.unlink()


def write_document(path: Path, document: Document) -> None:
    """Write it in one step, with its checksum."""
    sealed = {**document, "checksum": _checksum(document)}
    data = json.dumps(sealed, indent=1).encode()
    check_size(path, len(data))  # rather refused than written and never read again
    write_bytes(path, data)


def read_document(path: Path) -> Document:
    """Read a document; raise `DamagedFile` for anything that `write_document` did not write."""
    found = json_object(path, FIX)
    form = found.get("format")
    if isinstance(form, int) and form > FORMAT:
        raise newer(path, f"format {form}", FORMAT, code="newer_format")
    if found.pop("checksum", None) != _checksum(found):
        raise DamagedFile(shown(path), "wrong checksum: a byte changed, or it was edited", FIX)
    try:
        sound = _is_sound(found)
    except (KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise DamagedFile(shown(path), "a field is missing or cannot be used", FIX)
    return found


def _checksum(document: Document) -> str:
    """SHA-256 of the values, independent of the layout of the text."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return sha256_of([text.encode()])


def _is_sound(found: Document) -> bool:
    """Whether fields hold what they should; one that is missing is a KeyError."""
    journal, undo, redo = lists = found["journal"], found["undo"], found["redo"]
    numbers = [
        found["format"],
        found["version"],
        *undo,
        *redo,
        *(found[name] for name in ("like", "origin") if found.get(name) is not None),
        *(line["version"] for line in journal),
        *(line["of"] for line in journal if "of" in line),
        *(version for line in journal for version in line.get("also", ())),
    ]
    return (
        all(isinstance(value, list) for value in lists)
        and all(type(number) is int and 0 < number < 1 << 53 for number in numbers)
        and all(isinstance(line[name], str) for line in journal for name in ("action", "time"))
        and isinstance(found["meta"], dict)
        and all(re.fullmatch("[0-9a-f]{64}", name) for name in found["blobs"].values())
    )


def write_blob(folder: Path, arrays: Group) -> str:
    """Write a group unless it is there already; return its name, the SHA-256 of the file."""
    data = storage.packed("model", arrays)
    name = sha256_of([data])
    path = folder / f"{name}{_SUFFIX}"
    if not path.exists() or sha256(path) != name:
        write_bytes(path, data)
    return name


def read_blob(folder: Path, name: str) -> Group:
    """Read the group of that name and check every byte of it; 0.1 wrote no header.

    A fault of the disk is an OSError, as for documents.
    """
    path = folder / f"{name}{_SUFFIX}"
    if sha256(path) != name:
        raise DamagedFile(shown(path), "wrong checksum: a byte changed", FIX)
    try:
        return storage.read(path, "model", old=lambda header: {}, check=False)[1]
    except InputError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise
