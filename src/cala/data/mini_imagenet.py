"""mini-ImageNet as users of the field have it: flat images with two lists, or class folders."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cala.data.images import ImageSet
from cala.data.listing import (
    File,
    Listing,
    below,
    class_folders,
    images_in,
    open_decoded,
    read_text,
)
from cala.data.protocol import load_protocol
from cala.data.sets import DATASETS, DataSet
from cala.errors import InputError
from cala.files import reason, shown

# The field's test transform is Resize 92 -> CenterCrop 84; more pixels than that are never used.
SIZE = (92, 92)
WNID = re.compile(r"n\d{8}")
NEARLY_ALL = 0.95  # fraction of the classes
_COLUMNS = ("filename", "label")


class MiniImagenet(DataSet):
    """Images at 92×92; labels are the sorted wnids."""

    name = "mini_imagenet"
    layout = "images/ with split/train.csv and split/test.csv, or train/<wnid>/*.jpg and test/"

    def recognise(self, path: Path) -> bool:
        return _is_flat(path) or _is_whole(path)

    def fits(self, path: Path) -> bool:
        return _is_flat(path) or _folders(path) is not None

    def open(self, path: Path, on_bad: str, max_pixels: int, **options: Any) -> ImageSet:
        listing = _from_lists(path) if _is_flat(path) else _from_folders(path)
        return open_decoded(listing, SIZE, on_bad, max_pixels)


def _is_flat(path: Path) -> bool:
    return (path / "images").is_dir() and (path / "split" / "train.csv").is_file()


def _is_whole(path: Path) -> bool:
    """Return whether train/ has (nearly) all of the wnids and no other folder.

    Photos of other sets have folders named after wnids too: a few of them are not mini-ImageNet.
    """
    parts = _folders(path)
    if parts is None or parts["train"] == path:
        return False
    return len(class_folders(parts["train"])) >= NEARLY_ALL * len(_official())


def _folders(path: Path) -> dict[str, Path] | None:
    """Return the folders that hold a folder per wnid, by part."""
    if not path.is_dir():
        return None
    parts = {"train": path / "train" if (path / "train").is_dir() else path}
    if (path / "train").is_dir() and (path / "test").is_dir():
        parts["test"] = path / "test"
    names = {folder.name for folder in class_folders(parts["train"])}
    return parts if names and names <= set(_official()) else None


def _official() -> tuple[str, ...]:
    expected = load_protocol("mini_imagenet").expected
    return expected.classes if expected else ()


def _listing(root: Path, found: Iterable[str]) -> tuple[Listing, dict[str, int]]:
    """Return an empty listing and the label of each wnid.

    The official list is used if it covers what was found, so that a part keeps its labels.
    """
    names, official = set(found), _official()
    classes = official if names <= set(official) else tuple(sorted(names))
    column = {wnid: label for label, wnid in enumerate(classes)}
    return Listing("mini_imagenet", root, classes), column


def _from_lists(root: Path) -> Listing:
    rows = {part: _rows(root / "split" / f"{part}.csv") for part in ("train", "test")}
    listing, column = _listing(root, (wnid for part in rows.values() for _, wnid in part))
    for part, files in (("train", listing.train), ("test", listing.test)):
        for name, wnid in rows[part]:
            path = below(root / "images", name, f"split/{part}.csv")
            nested = path.parent / wnid / path.name
            path = nested if not path.exists() and nested.exists() else path
            files.append(File(path, name, column[wnid]))
    return listing


def _rows(path: Path) -> list[tuple[str, str]]:
    if not path.is_file():
        detail = f"{shown(path)}, the list of images, is missing"
        raise InputError(detail, "get it again", code="missing_file")
    try:
        table = csv.DictReader(io.StringIO(read_text(path), newline=""))
        found, columns = list(table), table.fieldnames or ()
    except csv.Error as error:
        detail = f"{shown(path)} is not a table ({reason(error)})"
        raise InputError(detail, "get it again", code="damaged_file") from error
    lacking = [name for name in _COLUMNS if name not in columns]
    if lacking:
        detail = f"{shown(path)} has no column {', '.join(lacking)}"
        fix = f"its first line must be {','.join(_COLUMNS)}"
        raise InputError(detail, fix, code="no_column")
    rows = []
    for line, row in enumerate(found, start=2):
        name, wnid = row["filename"], row["label"]
        if not name or not wnid or not WNID.fullmatch(wnid):
            detail = f"{shown(path)}, line {line}: {wnid!r} of {name!r} is not a WordNet number"
            raise InputError(detail, "use numbers such as n01532829", field="label")
        rows.append((name, wnid))
    return rows


def _from_folders(root: Path) -> Listing:
    parts = _folders(root)
    assert parts is not None, root
    found = {part: class_folders(folder) for part, folder in parts.items()}
    listing, column = _listing(root, (folder.name for part in found.values() for folder in part))
    for part, files in (("train", listing.train), ("test", listing.test)):
        for folder in found.get(part, []):
            for image in images_in(folder, listing.left_out):
                name = image.relative_to(root).as_posix()
                files.append(File(image, name, column[folder.name]))
    if "test" not in parts:
        listing.notes.append("there is no test/ folder: the test part is empty")
    return listing


DATASETS.register("mini_imagenet", "mini-ImageNet: 100 classes, 60,000 images")(MiniImagenet())
