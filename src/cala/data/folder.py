"""Your own photos: one folder per class, with train/ and test/ or without."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from cala.data.formats import LeftOut
from cala.data.images import ImageSet
from cala.data.listing import File, Listing, class_folders, class_images, open_lazily
from cala.data.sets import DATASETS, DataSet
from cala.errors import InputError
from cala.files import preview, shown


class Folder(DataSet):
    """root/<class>/*.jpg, or root/train/<class>/*.jpg and root/test/<class>/*.jpg.

    Options: `holdout`, the fraction of every class held out for testing, and `seed`, which chooses
    the images.
    """

    name = "folder"
    layout = "one folder of images per class, directly or below train/ and test/"
    options = ("holdout", "seed")
    general = True

    def recognise(self, path: Path) -> bool:
        return path.is_dir() and bool(class_folders(path))

    def open(self, path: Path, on_bad: str, max_pixels: int, **options: Any) -> ImageSet:
        holdout, seed = options.get("holdout"), options.get("seed", 0)
        if holdout is not None and not (isinstance(holdout, int | float) and 0 < holdout < 1):
            detail = f"the test share (holdout) is {holdout!r}"
            raise InputError(detail, "use a fraction between 0 and 1, such as 0.2", field="holdout")
        return open_lazily(_listing(path, holdout, seed), on_bad, max_pixels)


def is_split(path: Path) -> bool:
    """Return whether `path` has class folders below train/, rather than a class called train."""
    train = path / "train"
    return train.is_dir() and bool(class_folders(train))


def _listing(root: Path, holdout: float | None, seed: int) -> Listing:
    notes: list[str] = []
    left_out: list[LeftOut] = []
    parts = {"train": root}
    if is_split(root):
        parts = {part: root / part for part in ("train", "test") if (root / part).is_dir()}
        ignored = [f.name for f in class_folders(root) if f.name not in parts]
        if ignored:
            notes.append(f"beside train/ and test/, ignored: {preview(ignored)}")
    if holdout is not None and "test" in parts:
        detail = f"{shown(root)} has a test/ folder"
        raise InputError(detail, "leave out --test (holdout)", field="holdout")
    found: dict[str, dict[str, list[Path]]] = {}
    for part, folder in parts.items():
        for class_folder in class_folders(folder):
            images = class_images(class_folder, left_out)
            if images:
                found.setdefault(class_folder.name, {})[part] = images
            else:
                notes.append(f"{shown(class_folder.name)}: no image in this folder")
    if not found:
        raise InputError(
            f"{shown(root)} has folders but no image directly inside them",
            f"expected {shown(root)}/<class>/<image>.jpg",
            code="no_images",
        )
    listing = Listing("folder", root, tuple(sorted(found)), notes=notes, left_out=left_out)
    for label, name in enumerate(listing.classes):
        train, test = found[name].get("train", []), found[name].get("test", [])
        if holdout is not None:
            train, test = _hold_out(train, name, holdout, seed)
        for files, images in ((listing.train, train), (listing.test, test)):
            files += [File(path, path.relative_to(root).as_posix(), label) for path in images]
    return listing


def _hold_out(
    images: list[Path], name: str, share: float, seed: int
) -> tuple[list[Path], list[Path]]:
    """Split by a hash of each image's own name, so that adding images hardly moves others."""
    count = min(max(round(share * len(images)), 1), len(images) - 1)

    def place(image: Path) -> bytes:
        text = f"{seed}/{name}/{image.name}".encode("utf-8", "surrogateescape")
        return hashlib.sha256(text).digest()

    held = set(sorted(images, key=place)[:count])
    return [i for i in images if i not in held], [i for i in images if i in held]


DATASETS.register("folder", "your own photos: one folder per class")(Folder())
