"""A zip file of labelled photos, read in memory: no member is ever written to a disk."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator
from pathlib import PurePosixPath, PureWindowsPath
from typing import BinaryIO

from cala.app.problems import Problem
from cala.app.settings import Limits
from cala.app.uploads import Upload, too_many
from cala.data.decoding import SUFFIXES
from cala.files import reason, shown

FIELD = "archive"
END_RECORD = 65_557  # bytes from the end within which an archive's list of members is announced
LISTED = 400  # bytes of a member in that list, at the most on average
MEMBERS = 4  # entries of folders and other files beside each photo, before it is no photo archive


def labelled_members(file: BinaryIO, limits: Limits) -> Iterator[Upload]:
    """Photos of a zip file whose folders are their classes: robin/1.jpg, test/robin/2.jpg.

    All names are looked at before the first photo is unpacked; what members say about their size
    is not believed.
    """
    try:
        _check_directory(file, limits)
        with zipfile.ZipFile(file) as opened:
            members = _photos(opened, limits)
            left = limits.unpacked
            for place, (member, label, name) in enumerate(members):
                data = _read(opened, member, min(limits.file, left))
                left -= len(data)
                digest = hashlib.sha256(data).hexdigest()
                yield Upload(f"{label}/{name}", f"{FIELD}[{place}]", digest, data, label)
    except Problem:
        raise
    except GeneratorExit:
        raise
    except Exception as error:  # each way of packing fails with errors of its own
        raise _bad(f"the archive cannot be read ({reason(error)[:200]})") from error


def _check_directory(file: BinaryIO, limits: Limits) -> None:
    """The list of members is read as a whole: its size is looked at before."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - END_RECORD))
    tail = file.read()
    file.seek(0)
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) < at + 22:
        return  # the library says what is wrong
    listed = int.from_bytes(tail[at + 12 : at + 16], "little")
    if listed > LISTED * MEMBERS * limits.check:
        raise too_many(limits.check)


def _photos(opened: zipfile.ZipFile, limits: Limits) -> list[tuple[zipfile.ZipInfo, str, str]]:
    members = opened.infolist()
    if len(members) > MEMBERS * limits.check:
        raise too_many(limits.check)
    found = []
    for member in members:
        path = PurePosixPath(member.filename)
        escapes = path.is_absolute() or ".." in path.parts or "\\" in member.filename
        if escapes or PureWindowsPath(member.filename).drive or "\0" in member.orig_filename:
            raise _bad(f"'{shown(member.filename)[:100]}' leads out of the archive")
        hidden = any(part.startswith((".", "__MACOSX")) for part in path.parts)
        if member.is_dir() or hidden or path.suffix.lower() not in SUFFIXES:
            continue
        if len(path.parts) < 2:
            raise _bad(
                f"'{shown(path.name)[:100]}' lies in no folder",
                "put each photo into a folder that is called after its class",
            )
        found.append((member, path.parts[-2], shown(path.name)))
    if len(found) > limits.check:
        raise too_many(limits.check)
    if not found:
        raise _bad("the archive holds no photo", "zip folders of photos, one for each class")
    if sum(member.file_size for member, _, _ in found) > limits.unpacked:
        raise _bad(f"the archive unpacks to more than {limits.unpacked >> 20} MB")
    return found


def _read(opened: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> bytes:
    with opened.open(member) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise _bad(f"'{shown(member.filename)[:100]}' unpacks to more than is allowed")
    return data


def _bad(detail: str, fix: str = "zip folders of photos again, one for each class") -> Problem:
    return Problem(422, "bad_archive", detail, field=FIELD, fix=fix)
