"""Photos into one folder per class, and back: nothing is overwritten, a manifest undoes it."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Any

from cala.data.formats import SUFFIXES
from cala.data.image_scan import UNREADABLE, digests
from cala.data.listing import below
from cala.errors import InputError
from cala.files import (
    clear_leftovers,
    make_folder,
    quoted,
    read_whole,
    reason,
    sha256,
    shown,
    sync_folder,
    write_text,
)
from cala.model.prediction import Prediction
from cala.store import is_store

MANIFEST = "cala-sort.json"
FORMAT = 1
ACTIONS = ("copy", "link", "move")
_PART = ".cala-part-"  # how the names of unfinished copies begin

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Sorted:
    """One photo: where it was, where it is below the target folder, and why."""

    source: str
    target: str
    action: str
    label: str
    probability: float
    sha256: str


def sort_photos(
    answers: Sequence[Prediction],
    out: Path,
    action: str = "copy",
    *,
    dry_run: bool = False,
    advance: Advance = lambda done: None,
) -> tuple[list[Sorted], int]:
    """Put photos into `out`, in a folder for each label.

    A file that is there stays: the new one gets a number. The manifest is written first, so that
    `unsort_photos` can undo what an interrupted call has done. Photos that the manifest lists
    are not sorted again.

    Returns the photos that were sorted, and how many were sorted before.
    """
    before = _manifest(out) if (out / MANIFEST).exists() else []
    paths = [Path(answer.image).absolute() for answer in answers]
    found = digests(paths)
    asked = set(zip(map(str, paths), found, strict=True))
    done = {(one.source, one.sha256) for one in before if (out / one.target).exists()}
    left = asked - done  # what an interrupted call had planned for these is planned again
    before = [one for one in before if (one.source, one.sha256) not in left]
    plan: list[Sorted] = []
    taken = {one.target for one in before}
    folders = _folders({answer.label for answer in answers})
    for answer, path, digest in zip(answers, paths, found, strict=True):
        if (str(path), digest) in done:
            continue
        if digest == UNREADABLE:  # it could not be told from another one later
            raise InputError(f"{shown(path)} cannot be read", "leave it out", code="unreadable")
        if action == "move" and path.is_symlink():
            raise InputError(
                f"{shown(path)} is a symbolic link", "copy instead of moving", code="linked_photo"
            )
        target = _free(out, PurePath(folders[answer.label], path.name), taken)
        taken.add(target)
        own = round(answer.probability, 6)
        plan.append(Sorted(str(path), target, action, answer.label, own, digest))
    _check_folders(out, folders.values())
    if not dry_run and plan:
        try:
            make_folder(out)
            _write_manifest(out, [*before, *plan])
            for one in plan:
                _place(Path(one.source), out / one.target, action)
                advance(1)
        except OSError as error:
            raise InputError(
                f"{shown(error.filename or out)} cannot be sorted ({reason(error)})",
                f"`cala sort --undo {quoted(out)}` takes back what was done"
                + ("; leave out --link, which needs one disk" if action == "link" else ""),
                field="out",
                code="not_sorted",
            ) from error
    return plan, len(answers) - len(plan)


def finish_sorting(out: Path, known: Container[tuple[str, str]]) -> list[Sorted]:
    """What an interrupted `sort_photos` has put into `out`, apart from `known`.

    A photo that was to be moved, and is in both places, is deleted from where it was. Only for a
    caller that knows that no other process sorts into `out`.

    known : (source, sha256) of photos that need no look
    """
    if not out.is_dir():
        return []
    clear_leftovers(out / MANIFEST)
    for part in out.glob(f"*/{_PART}*"):
        part.unlink(missing_ok=True)
    placed = []
    for one in _manifest(out) if (out / MANIFEST).exists() else []:
        source, target = Path(one.source), below(out, one.target, MANIFEST)
        if (one.source, one.sha256) not in known and target.exists():
            both = source.is_file() and one.action == "move"
            if both and sha256(source) == one.sha256 == sha256(target):
                source.unlink()
            placed.append(one)
    return placed


def unsort_photos(out: Path) -> tuple[int, list[tuple[str, str]]]:
    """Undo `sort_photos`: copies go, moved photos go back, and what has changed stays.

    A copy whose original is gone is moved back, so that no photo is lost.

    Returns how many were taken back, and those that stay with the reason.
    """
    if not (out / MANIFEST).exists():
        raise InputError(
            f"{shown(out)} has no {MANIFEST}", "give a folder that `cala sort` made", field="undo"
        )
    entries = _manifest(out)
    stay: list[tuple[Sorted, str]] = []
    back = 0
    for one in entries:
        source, target = Path(one.source), below(out, one.target, MANIFEST)
        placed = os.path.lexists(target)
        try:
            why = _take_back(source, target, one.sha256)
        except OSError as error:
            why = reason(error)
        if why:
            stay.append((one, why))
        else:
            back += placed
    for folder in {(out / one.target).parent for one in entries}:
        with suppress(OSError):  # it holds other files
            folder.rmdir()
    if stay:
        _write_manifest(out, [one for one, _ in stay])
    else:
        (out / MANIFEST).unlink()
        with suppress(OSError):
            out.rmdir()
    return back, [(one.target, why) for one, why in stay]


def _check_folders(out: Path, names: Iterable[str]) -> None:
    """Raise where photos cannot be put, before any is."""
    if is_store(out):
        raise InputError(
            f"{shown(out)} holds a model", "choose another folder", field="out", code="model_exists"
        )
    for path in (out, *(out / name for name in names)):
        if path.exists() and not path.is_dir():
            raise InputError(f"{shown(path)} is not a folder", "choose another folder", field="out")


def summary(labels: Sequence[str]) -> str:
    """How often each label occurs, most often first.

    >>> summary(["unknown", "robin", "unknown"])
    '2 unknown, 1 robin'
    """
    return ", ".join(f"{count:,} {shown(label)}" for label, count in Counter(labels).most_common())


def _take_back(source: Path, target: Path, digest: str) -> str:
    """Why a photo stays where it is; empty if it was taken back."""
    if not target.exists():  # it was never put there, or was taken away
        return "" if source.exists() else "it is neither there nor where it was"
    if sha256(target) != digest:
        return "it was changed"
    if source.exists():
        if sha256(source) != digest:
            return "another file has its old place"
        target.unlink()
        return ""
    if source.suffix.lower() not in SUFFIXES:  # a manifest of others' could name any file
        return "its old name is not that of a photo"
    make_folder(source.parent)
    _place(target, source, "move")
    return ""


def _place(source: Path, target: Path, action: str) -> None:
    """Copy, link or move a file; an existing target is an error."""
    make_folder(target.parent)
    if action == "copy":
        _copy(source, target)
    elif action == "link":
        os.link(source.resolve(), target)  # of a symbolic link what it points to
    else:
        try:
            os.link(source, target)  # unlike a renaming, it never overwrites
        except FileExistsError:
            raise
        except OSError:  # another disk, or one without hard links
            _copy(source, target)
        sync_folder(target.parent)  # else a power cut could take both names
        source.unlink()


def _copy(source: Path, target: Path) -> None:
    """Copy a file in one step: a process that is killed leaves no part of a photo."""
    part = target.with_name(_PART + secrets.token_hex(8))
    try:
        with source.open("rb") as file, part.open("xb") as copy:
            shutil.copyfileobj(file, copy)
            copy.flush()
            os.fsync(copy.fileno())
        with suppress(OSError):
            shutil.copystat(source, part)
        try:
            os.link(part, target)
        except FileExistsError:
            raise
        except OSError:  # a disk without hard links
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, "it is there", str(target)) from None
            part.rename(target)
    finally:
        part.unlink(missing_ok=True)


def _folders(labels: set[str]) -> dict[str, str]:
    """A folder name for each label; labels that differ get different ones on any system."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for label in sorted(labels):
        plain = re.sub(r'[\x00-\x1f<>:"/\\|?*]', "_", label).strip(". ")[:120] or "class"
        name, number = plain, 2
        while name.casefold() in taken:
            name, number = f"{plain} ({number})", number + 1
        taken.add(name.casefold())
        found[label] = name
    return found


def _free(out: Path, wanted: PurePath, taken: set[str]) -> str:
    """A path below `out` that is not taken, with a number if it must be."""
    place, number = wanted, 2
    while place.as_posix() in taken or os.path.lexists(out / place):
        place, number = wanted.with_name(f"{wanted.stem} ({number}){wanted.suffix}"), number + 1
    return place.as_posix()


def _write_manifest(out: Path, entries: Sequence[Sorted]) -> None:
    content = {"format": FORMAT, "photos": [asdict(one) for one in entries]}
    write_text(out / MANIFEST, json.dumps(content, indent=1))


def _manifest(out: Path) -> list[Sorted]:
    try:
        found: Any = json.loads(read_whole(out / MANIFEST))
        if found["format"] != FORMAT:
            raise ValueError(f"format {found['format']}")
        entries = [Sorted(**one) for one in found["photos"]]
        if not all(isinstance(v, str) for e in entries for v in (e.source, e.target, e.sha256)):
            raise ValueError("a path is missing")
        return entries
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{shown(out / MANIFEST)} cannot be used ({reason(error)})",
            "choose another folder",
            field="out",
            code="damaged_file",
        ) from error
