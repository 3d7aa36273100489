"""A zip file of labelled photos, read in memory: no member is ever written to a disk."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, BinaryIO, cast

from cala.app.problems import Problem
from cala.app.settings import Limits
from cala.app.uploads import Sent, Upload, bad, too_many
from cala.data.formats import SUFFIXES, is_system
from cala.files import reason, shown
from cala.model.version import plain_name

FIELD = "archive"
LISTED = 400  # bytes of a member in the list of members, at most on average
MEMBERS = 4  # folders and other files for each photo, before it is no archive of photos
END_RECORD = 1 << 17  # bytes that may be read at once in search of that list


class _BoundedReads:
    """A file that refuses to read much at once: the list of members is read as a whole."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self.file, self.most, self.refused = file, most, False

    def read(self, size: int = -1) -> bytes:
        if size > self.most:
            self.refused = True
            raise ValueError("the list of members is too long")
        return self.file.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def labelled_photos(sent: Sent, limits: Limits) -> Iterator[Upload]:
    """Photos that say what they show: those of a request, or of the archive in it."""
    if sent.archive is not None:
        yield from _members(sent.archive, limits)
        return
    for upload in sent.photos:
        if not plain_name(upload.label):
            fix = "send one 'labels' for each photo, or a label in each JSON object"
            raise bad(upload.field, f"{upload.name} has no label", fix)
    yield from sent.photos


def _members(file: BinaryIO, limits: Limits) -> Iterator[Upload]:
    """Photos of a zip file whose folders are their classes: robin/1.jpg, test/robin/2.jpg.

    All names are checked before the first photo is unpacked; what members say about their size is
    not believed.
    """
    bounded = _BoundedReads(file, max(END_RECORD, LISTED * MEMBERS * limits.check))
    try:
        with zipfile.ZipFile(cast(BinaryIO, bounded)) as opened:
            bounded.most = limits.archive
            left = limits.unpacked
            for place, (member, label, name) in enumerate(_photos(opened, limits)):
                data = _read(opened, member, min(limits.file, left))
                left -= len(data)
                digest = hashlib.sha256(data).hexdigest()
                yield Upload(f"{label}/{name}", f"{FIELD}[{place}]", digest, data, label)
    except Problem:
        raise
    except Exception as error:  # each way of packing fails with errors of its own
        if bounded.refused:
            raise too_many(limits.check) from error
        raise _bad(f"the archive cannot be read ({reason(error)[:200]})") from error


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
        hidden = any(is_system(part) for part in path.parts)
        if member.is_dir() or hidden or path.suffix.lower() not in SUFFIXES:
            continue
        if len(path.parts) < 2:
            fix = "put each photo into a folder that is named after its class"
            raise _bad(f"'{shown(path.name)[:100]}' is in no folder", fix)
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
    return Problem("bad_archive", detail, fix, field=FIELD)
