"""Unpacking an archive that came from elsewhere: plain files and folders only, all below one."""

from __future__ import annotations

import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath

from cala.errors import InputError
from cala.files import reason, shown

MAX_BYTES = 16 * 2**30


def unpack(archive: Path, target: Path, max_bytes: int = MAX_BYTES) -> None:
    """Unpack a tar archive into `target`, which appears only when all of it is there.

    Links, devices, paths that lead out of `target` and more than `max_bytes` are refused.
    """
    if target.exists():
        raise InputError(f"{shown(target)} is already there: remove it to unpack again")
    fresh = target.with_name(f".{target.name}.unpacking")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        with tarfile.open(archive) as opened:
            left = max_bytes
            for member in opened:
                left -= _write(opened, member, fresh, archive, left)
        fresh.rename(target)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise InputError(
            f"{shown(archive)} cannot be unpacked ({reason(error)}): get it again"
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write(
    opened: tarfile.TarFile, member: tarfile.TarInfo, root: Path, archive: Path, left: int
) -> int:
    """Write one member and return its size."""
    path = PurePosixPath(member.name)
    escapes = path.is_absolute() or ".." in path.parts or PureWindowsPath(member.name).drive
    if escapes or "\\" in member.name:
        raise InputError(f"{shown(archive)} is refused: {shown(member.name)!r} leads out of it")
    place = root.joinpath(*path.parts)
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
        return 0
    if not member.isreg():
        raise InputError(f"{shown(archive)} is refused: {shown(member.name)!r} is a link or device")
    if member.size > left:
        raise InputError(f"{shown(archive)} is refused: it unpacks to more than is sensible")
    content = opened.extractfile(member)
    assert content is not None
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("wb") as file:
        shutil.copyfileobj(content, file)
    return member.size
