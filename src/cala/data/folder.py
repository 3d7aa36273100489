"""Your own photos: one folder per class, with train/ and test/ or without."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from cala.data.decoding import MAX_PIXELS
from cala.data.images import ImageSet
from cala.data.listing import Files, Listing, class_folders, images_in, open_lazily, preview
from cala.data.sets import DATASETS, DataSet
from cala.errors import InputError
from cala.files import shown


class Folder(DataSet):
    """root/<class>/*.jpg, or root/train/<class>/*.jpg and root/test/<class>/*.jpg."""

    name = "folder"
    layout = "one folder of images per class, directly or below train/ and test/"
    general = True

    def recognise(self, path: Path) -> bool:
        return path.is_dir() and any(True for _ in class_folders(path))

    def open(
        self,
        path: Path,
        on_bad: str = "raise",
        holdout: float | None = None,
        seed: int = 0,
        max_pixels: int = MAX_PIXELS,
        **options: Any,
    ) -> ImageSet:
        """holdout : share of every class that becomes the test part, chosen by `seed`

        max_pixels : larger images are refused before they are decoded
        """
        if options:
            raise InputError(
                f"folder has no option {', '.join(options)}: use holdout, seed, max_pixels"
            )
        number = isinstance(holdout, int | float)
        if holdout is not None and not (number and 0 < holdout < 1):
            raise InputError(
                f"the share of test images is {holdout!r}: give a number between 0 and 1, as 0.2"
            )
        return open_lazily(_listing(path, holdout, seed), on_bad, max_pixels)


def is_split(path: Path) -> bool:
    """Whether `path` has class folders below train/ rather than being a class called train."""
    train = path / "train"
    return train.is_dir() and bool(class_folders(train))


def _listing(root: Path, holdout: float | None, seed: int) -> Listing:
    notes: list[str] = []
    if is_split(root):
        parts = {"train": root / "train"}
        if (root / "test").is_dir():
            parts["test"] = root / "test"
        ignored = [f.name for f in class_folders(root) if f.name not in parts]
        if ignored:
            notes.append(f"beside train/ and test/, ignored: {preview(ignored)}")
    else:
        parts = {"train": root}
    if holdout is not None and "test" in parts:
        raise InputError(
            f"{shown(root)} has a test/ folder: leave out the share of test images ({holdout})"
        )
    found: dict[str, dict[str, list[Path]]] = {}
    for part, folder in parts.items():
        for class_folder in class_folders(folder):
            images = images_in(class_folder, notes)
            if images:
                found.setdefault(class_folder.name, {})[part] = images
            else:
                notes.append(f"{shown(class_folder.name)}: no image in this folder")
    if not found:
        raise InputError(
            f"{shown(root)} has folders but no image directly inside them: expected "
            f"{shown(root)}/<class>/<image>.jpg"
        )
    listing = Listing("folder", root, tuple(sorted(found)), notes=notes)
    for label, name in enumerate(listing.classes):
        train, test = found[name].get("train", []), found[name].get("test", [])
        if holdout is not None:
            train, test = _hold_out(train, name, holdout, seed)
        for files, images in ((listing.train, train), (listing.test, test)):
            _enter(files, images, root, label)
    return listing


def _enter(files: Files, images: list[Path], root: Path, label: int) -> None:
    for image in images:
        files.add(image, image.relative_to(root).as_posix(), label)


def _hold_out(
    images: list[Path], name: str, share: float, seed: int
) -> tuple[list[Path], list[Path]]:
    """An image's place depends on its own name, so that adding others hardly moves it."""
    count = min(max(round(share * len(images)), 1), len(images) - 1)

    def place(image: Path) -> bytes:
        text = f"{seed}/{name}/{image.name}".encode("utf-8", "surrogateescape")
        return hashlib.sha256(text).digest()

    held = set(sorted(images, key=place)[:count])
    return [i for i in images if i not in held], [i for i in images if i in held]


DATASETS.register("folder", "your own photos: one folder per class")(Folder())
