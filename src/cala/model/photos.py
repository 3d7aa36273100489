"""Whatever a user may mean by photos: paths, folders with or without labels, arrays, images.

And which of them a model has not learned from yet.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cala.data.decoding import Pixels, decode, to_pixels
from cala.data.folder import is_split
from cala.data.formats import LeftOut, is_system, left_out_note, why_left_out
from cala.data.image_scan import scan
from cala.data.images import FilePixels, ImageSplit, Rows
from cala.data.listing import class_folders, class_images, images_in
from cala.errors import InputError, LeftOutWarning
from cala.files import reason, shown
from cala.store import JournalEntry

HASHES_IN_JOURNAL = 200
KINDS = "give paths, PIL images or (h, w, 3) arrays of uint8"

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class MemoryPixels:
    """Images that are in memory already, of any sizes."""

    images: tuple[Pixels, ...]

    def __len__(self) -> int:
        return len(self.images)

    def image(self, row: int, least: int | None = None) -> Pixels:
        return self.images[row]

    def batches(self, rows: Rows, size: int) -> Iterator[Sequence[Pixels]]:
        for start in range(0, len(rows), size):
            yield [self.images[row] for row in rows[start : start + size]]

    def take(self, rows: Rows) -> MemoryPixels:
        return MemoryPixels(tuple(self.images[row] for row in rows))

    def digests(self, rows: Rows) -> list[str]:
        return [_digest(self.images[row]) for row in rows]


def gather(images: Any, labels: Sequence[int] | None = None, strict: bool = False) -> ImageSplit:
    """One image, several, or folders of them, as a split; labels (n,) default to 0.

    images : path, PIL image, (h, w, 3) uint8 array, (n, h, w, 3) array, or a list of these
    strict : raise if folders hold files that are not photos; otherwise a warning names them
    """
    items = _listed(images)
    paths = [item for item in items if isinstance(item, str | os.PathLike)]
    if len(paths) == len(items):
        left_out: list[LeftOut] = []
        files = find_files(paths, left_out)
        if strict:
            check_none_left_out(left_out, len(files))
        if left_out:
            warnings.warn(
                LeftOutWarning(left_out_note(left_out, len(files)), "left_out"), stacklevel=3
            )
        names = tuple(str(path) for path in files)
        source: Any = FilePixels(tuple(files))
    else:
        decoded = [_pixels(item, place) for place, item in enumerate(items)]
        names = tuple(
            str(item) if isinstance(item, str | os.PathLike) else f"image {place}"
            for place, item in enumerate(items)
        )
        source = MemoryPixels(tuple(decoded))
    given = np.zeros(len(source), dtype=np.int64) if labels is None else np.asarray(labels)
    return ImageSplit(given, names, source)


def find_files(
    paths: Sequence[str | os.PathLike[str]], left_out: list[LeftOut] | None = None
) -> list[Path]:
    """Files as they are given, and the photos below folders, in order.

    left_out : takes the other files below folders
    """
    others: list[LeftOut] = [] if left_out is None else left_out
    found: list[Path] = []
    for given in paths:
        path = Path(given)
        try:
            is_folder = path.is_dir()
            path.lstat()
        except (OSError, ValueError) as error:
            if _is_address(given):
                detail, fix = (
                    "only files and folders are read",
                    "save the photo to a file, and give that",
                )
                raise InputError(detail, fix, field="photos", code="address") from error
            if isinstance(error, FileNotFoundError):
                raise _missing(path) from error
            raise InputError(f"{shown(path)} cannot be read ({reason(error)})") from error
        inside = _below(path, others) if is_folder else [path]
        if not inside:
            raise InputError(
                f"{shown(path)} holds no photos", _instead(others) or None, code="no_photos"
            )
        found += inside
    return _some(found)


def _is_address(given: str | os.PathLike[str]) -> bool:
    """Whether it is a web address, also as a path, or the `-` of programs that read a stream."""
    return str(given) == "-" or re.match(r"(https?|ftp|file|data):", str(given)) is not None


def _missing(path: Path) -> InputError:
    """The error for a path that does not exist; its fix has one of nearly that name."""
    names: list[str] = []
    with suppress(OSError):
        names = os.listdir(path.parent)
    near = difflib.get_close_matches(path.name, names, n=1)
    fix = f"did you mean {shown(path.with_name(near[0]))}?" if near else None
    return InputError(f"{shown(path)} does not exist", fix, field="photos", code="missing_file")


def labelled_files(
    folder: Path,
    part: str = "train",
    notes: list[str] | None = None,
    left_out: list[LeftOut] | None = None,
) -> tuple[list[Path], list[str]]:
    """Paths and class names of a folder with one folder per class, or with one class's photos.

    part : which of train/ and test/ to take, where the folder has these
    notes : takes what there is to say of folders that are skipped
    left_out : takes files that are not photos
    """
    said: list[str] = [] if notes is None else notes
    others: list[LeftOut] = [] if left_out is None else left_out
    try:
        if not folder.exists():
            raise _missing(folder)
        if not folder.is_dir():
            raise InputError(
                f"{shown(folder)} is not a folder",
                "give a folder with one folder of photos per class; `cala add` takes single "
                "photos with --as NAME",
                field="photos",
            )
        root = folder / part if is_split(folder) else folder
        if not root.is_dir():
            raise InputError(f"{shown(folder)} has no {part}/ folder", field="photos")
        own = images_in(root, others)
        classes = [(sub.name, class_images(sub, others)) for sub in class_folders(root)]
        deeper = [] if own else [sub for sub in class_folders(root) if _has_classes(sub)]
    except OSError as error:
        raise InputError(f"{shown(folder)} cannot be read ({reason(error)})") from error
    said += [f"{shown(name)}: no photo in this folder" for name, images in classes if not images]
    classes = [(name, images) for name, images in classes if images]
    if own and classes:
        raise InputError(
            f"{shown(root)} holds photos ({shown(own[0].name)}) and folders of photos "
            f"({shown(classes[0][0])})",
            "give one or the other",
            field="photos",
        )
    if own:
        classes = [(root.resolve().name, own)]
    if not classes:
        hint = f"; did you mean {shown(deeper[0])}?" if deeper else ""
        raise InputError(
            f"{shown(root)} holds no photos",
            f"expected {shown(root)}/<class>/<photo>.jpg{hint or _instead(others, '; ')}",
            field="photos",
            code="no_photos",
        )
    paths = [path for _, images in classes for path in images]
    return paths, [name for name, images in classes for _ in images]


def labelled(
    folder: Any, part: str = "train", strict: bool = False
) -> tuple[list[Path], list[str]]:
    """`labelled_files` for Python: what is left out is a warning, or an error if `strict`."""
    if not isinstance(folder, str | os.PathLike):
        raise InputError(
            "there are no labels",
            "give a label, one for each photo, or a folder with one folder of photos per class",
            field="label",
            code="no_labels",
        )
    left_out: list[LeftOut] = []
    notes: list[str] = []
    found = labelled_files(Path(folder), part, notes, left_out)
    if strict:
        check_none_left_out(left_out, len(found[0]))
    if left_out:
        notes.append(left_out_note(left_out, len(found[0])))
    for text in notes:
        warnings.warn(LeftOutWarning(text, "left_out"), stacklevel=3)
    return found


def _instead(left_out: Sequence[LeftOut], before: str = "") -> str:
    """What a place without photos holds instead, to put behind an error."""
    return before + left_out_note(left_out, 0) if left_out else ""


def check_none_left_out(left_out: Sequence[LeftOut], photos: int) -> None:
    """Raise if files beside so many photos are not used."""
    if left_out:
        raise InputError(
            left_out_note(left_out, photos),
            "move them elsewhere, or run it without --strict (strict=True in Python)",
            field="strict",
            code="left_out",
        )


def _has_classes(folder: Path) -> bool:
    return any(images_in(sub, []) for sub in class_folders(folder))


def with_readable(
    paths: Sequence[Path], work: Callable[[Sequence[Path]], T]
) -> tuple[T | None, list[tuple[Path, str]]]:
    """`work` on the photos that can be read, and the others with the reason.

    Photos are looked at twice only where `work` finds that one of them is bad.
    """
    try:
        return work(paths), []
    except InputError:
        faults = scan(paths).faults
        bad = [(path, why) for path, why in zip(paths, faults, strict=True) if why]
        if not bad:
            raise
    good = [path for path, why in zip(paths, faults, strict=True) if not why]
    return (work(good) if good else None), bad


def _below(folder: Path, left_out: list[LeftOut]) -> list[Path]:
    """Photos at any depth; links to folders are not followed, so no loop can trap us."""
    images: list[Path] = []

    def refuse(error: OSError) -> None:
        raise InputError(f"{shown(error.filename)} cannot be read ({reason(error)})") from error

    for root, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not is_system(name))
        for path in (Path(root, name) for name in sorted(files) if not is_system(name)):
            why = why_left_out(path)
            if why is None:
                images.append(path)
            else:
                left_out.append(LeftOut(path, why))
    return images


def _listed(images: Any) -> list[Any]:
    if isinstance(images, str | os.PathLike | Image.Image):
        return [images]
    if isinstance(images, np.ndarray) and images.ndim in (2, 3):
        return [images]
    try:
        return _some(list(images))
    except TypeError:
        raise InputError(f"photos are a {type(images).__name__}", KINDS, field="photos") from None


def _some(items: list[T]) -> list[T]:
    if not items:
        raise InputError("no photo was given", "name files or folders", field="photos")
    return items


def _pixels(item: Any, place: int) -> Pixels:
    if isinstance(item, str | os.PathLike):
        return decode(Path(item))[0]
    if isinstance(item, Image.Image):
        return to_pixels(item)
    if isinstance(item, np.ndarray) and item.dtype == np.uint8 and item.ndim in (2, 3):
        return item
    kind = f"{item.dtype} {item.shape}" if isinstance(item, np.ndarray) else type(item).__name__
    raise InputError(f"photo {place} is a {kind}", KINDS, field="photos")


def _digest(pixels: Pixels) -> str:
    size = repr(pixels.shape).encode()
    return hashlib.sha256(size + np.ascontiguousarray(pixels).tobytes()).hexdigest()


# Which photos are new.


@dataclass(frozen=True)
class NewPhotos:
    """Photos that a model has not learned from yet.

    rows : (m,) of those given; digests, names : m of each; duplicates : how many were left out
    """

    rows: NDArray[np.int64]
    digests: tuple[bytes, ...]
    names: tuple[str, ...]
    duplicates: int

    def entry(self, action: str, counts: dict[str, int]) -> JournalEntry:
        """What the journal says of learning them: how many of each class, and which."""
        details: dict[str, Any] = {"classes": counts}
        if len(self.digests) <= HASHES_IN_JOURNAL:  # more are in the group `photos` only
            details["sha256"] = [digest.hex() for digest in self.digests]
        if self.duplicates:
            details["again"] = self.duplicates
        return JournalEntry(action, details)


def new_photos(
    files: Sequence[str],
    digests: Sequence[bytes],
    names: Sequence[str],
    owner: Callable[[bytes], str | None] = lambda digest: None,
) -> NewPhotos:
    """Leave out photos that are there twice; a photo under two names is an error.

    files : for messages; names : the class of each; owner : which class has a digest already
    """
    taken: dict[bytes, str] = {}
    rows: list[int] = []
    for row, (digest, name) in enumerate(zip(digests, names, strict=True)):
        before = taken.get(digest) or owner(digest)
        if before is None:
            taken[digest] = name
            rows.append(row)
        elif before != name:
            raise InputError(
                f"{shown(files[row])} is labelled '{shown(name)}', but the same photo is already "
                f"'{shown(before)}'",
                "remove it from one of them",
                code="two_labels",
            )
    kept = tuple(digests[row] for row in rows), tuple(names[row] for row in rows)
    return NewPhotos(np.array(rows, dtype=np.int64), *kept, len(files) - len(rows))


def digests_of(split: ImageSplit) -> list[bytes]:
    """SHA-256 of every photo; one that cannot be read is named."""
    found = split.digests()
    for name, digest in zip(split.names, found, strict=True):
        if len(digest) != 64:
            raise InputError(
                f"{shown(name)} cannot be read", "check its permissions, or leave it out"
            )
    return [bytes.fromhex(digest) for digest in found]
