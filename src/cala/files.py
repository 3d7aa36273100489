"""Files on disk: atomic writes, checksums, and names fit for a terminal."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shlex
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_CHUNK = 1 << 20
MOST_TEXT = 64 << 20  # bytes of a JSON document: parsed it takes up to twenty times as many
MOST_LINES = 1 << 30  # of a file that is read line by line


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without an error."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    temporary.touch(exist_ok=False)  # with the rights that any new file gets
    rights = temporary.stat().st_mode
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(rights)  # some writers make a file of their own
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)  # the file is there: from here on nothing may fail


def clear_leftovers(path: Path) -> None:
    """Delete what `atomic(path)` left behind in processes that were killed.

    Only for a caller that knows that no other process is writing `path`.
    """
    ours = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}\.tmp")
    for found in path.parent.iterdir():
        if ours.fullmatch(found.name):
            found.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a small file in one step: readers see the old text or the new one, never a part."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file in one step and see it on the disk before returning."""
    with atomic(path) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        finally:
            os.close(descriptor)


def read_whole(path: Path, *, lines: bool = False) -> bytes:
    """The bytes of a text file; one that is too large, or a pipe or device, is an OSError."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    check_size(path, status.st_size, lines=lines)
    return path.read_bytes()


def check_size(path: Path, size: int, *, lines: bool = False) -> None:
    """Raise an OSError for a text that `read_whole` would not read."""
    if size > (MOST_LINES if lines else MOST_TEXT):
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))


def sync_folder(folder: Path) -> None:
    """See to it that new and renamed files of a folder survive a power cut."""
    with suppress(OSError):  # not every system can open a folder
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder, and those above it, so that they survive a power cut."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in new:
        sync_folder(path.parent)


def file_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, a mebibyte at a time."""
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            yield piece


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file."""
    return sha256_of(file_chunks(path))


def sha256_of(pieces: Iterable[bytes]) -> str:
    """Hex SHA-256 of bytes that come in pieces."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def stamp(path: Path) -> list[int]:
    """Size and times of a file: as long as they stay, its content is taken to be the same."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def shown(name: object) -> str:
    r"""A name or path as one printable line: control characters and odd bytes are escaped.

    >>> shown("two\nlines 🐦")
    'two\\nlines 🐦'
    """
    text = str(name)
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def quoted(path: object) -> str:
    """A path as a word of a command that can be copied into a shell.

    >>> quoted("my birds"), quoted("birds")
    ("'my birds'", 'birds')
    """
    return shlex.quote(shown(path))


def preview(names: Iterable[str], limit: int = 3) -> str:
    """Return the first few of many names, for a message.

    >>> preview(["ant", "bee", "cat", "dog"], 2)
    'ant, bee and 2 more'
    """
    found = list(names)
    more = f" and {len(found) - limit:,} more" if len(found) > limit else ""
    return ", ".join(shown(name) for name in found[:limit]) + more


def counted(count: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "session"), counted(2, "class"), counted(1200, "image")
    ('1 session', '2 classes', '1,200 images')
    """
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"


def reason(error: BaseException) -> str:
    """The cause of an error in a few words, without the path that messages name anyway."""
    return shown(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def first_line(error: BaseException) -> str:
    """The first line of another library's message, at most 200 characters."""
    lines = (getattr(error, "strerror", None) or str(error)).strip().splitlines()
    return shown(lines[0])[:200] if lines else type(error).__name__
