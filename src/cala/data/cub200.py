"""CUB-200-2011 in its official layout, with the official train/test split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cala.data.images import ImageSet
from cala.data.listing import File, Listing, below, open_lazily, text_lines
from cala.data.sets import DATASETS, DataSet
from cala.errors import InputError
from cala.files import shown

CUB_FOLDER = "CUB_200_2011"
_LISTS = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt")


class Cub200(DataSet):
    """The name of an image is its path below images/."""

    name = "cub200"
    layout = f"the folder {CUB_FOLDER}/ with {', '.join(_LISTS)} and images/"

    def recognise(self, path: Path) -> bool:
        return _root(path) is not None

    def open(self, path: Path, on_bad: str, max_pixels: int, **options: Any) -> ImageSet:
        root = _root(path)
        assert root is not None, path
        return open_lazily(_listing(root), on_bad, max_pixels)


def _root(path: Path) -> Path | None:
    # One list is enough: opening an incomplete copy says what is missing.
    for folder in (path, path / CUB_FOLDER):
        if any((folder / name).is_file() for name in _LISTS[:3]):
            return folder
    return None


def _listing(root: Path) -> Listing:
    lacking = [name for name in _LISTS if not (root / name).is_file()]
    if not (root / "images").is_dir():
        lacking.append("images/")
    if lacking:
        detail = f"{shown(root)} lacks {', '.join(lacking)}"
        raise InputError(detail, "unpack the archive again", code="incomplete")
    images, labels, parts, classes = (_table(root / name) for name in _LISTS)
    listing = Listing("cub200", root, tuple(classes.values()))
    column = {number: label for label, number in enumerate(classes)}
    for key, name in images.items():
        label, part = labels.get(key), parts.get(key)
        if label is None or part not in ("0", "1"):
            source = "image_class_labels.txt" if label is None else "train_test_split.txt"
            raise _bad_list(f"{shown(root / source)} has no entry for image {key} ({shown(name)})")
        if label not in column:
            raise _bad_list(f"{shown(root)}: image {key} has class {label}, not in classes.txt")
        files = listing.train if part == "1" else listing.test
        files.append(File(below(root / "images", name, "images.txt"), name, column[label]))
    return listing


def _bad_list(detail: str) -> InputError:
    return InputError(detail, "unpack the archive again", code="damaged_file")


def _table(path: Path) -> dict[str, str]:
    """Lines of `number value` -> value by number, in the order of the file."""
    table: dict[str, str] = {}
    for line, text in enumerate(text_lines(path), start=1):
        number, _, value = text.partition(" ")
        if not number.isdecimal() or not value.strip():
            raise _bad_list(f"{shown(path)}, line {line}: {shown(text)!r} is not 'number value'")
        if number in table:
            raise _bad_list(f"{shown(path)}, line {line}: number {number} is repeated")
        table[number] = value.strip()
    return table


DATASETS.register("cub200", "CUB-200-2011: 200 kinds of birds, 11,788 images")(Cub200())
