"""Folders of photos whose names are the labels, as `add` and `eval` take them."""

from __future__ import annotations

from pathlib import Path

from cala.data.folder import is_split
from cala.data.listing import class_folders, images_in
from cala.errors import InputError
from cala.files import reason, shown


def labelled_files(
    folder: Path, part: str = "train", notes: list[str] | None = None
) -> tuple[list[Path], list[str]]:
    """Paths and class names of a folder with one folder per class, or with one class's photos.

    part : which of train/ and test/ to take, where the folder has these
    notes : hears of files and folders that are passed over
    """
    said: list[str] = [] if notes is None else notes
    try:
        if not folder.is_dir():
            raise InputError(
                f"{shown(folder)} is no folder: give one with a folder of photos per class, or say "
                "what the photos are with --as NAME"
            )
        root = folder
        if is_split(folder):
            root = folder / part
            if not root.is_dir():
                raise InputError(f"{shown(folder)} has no {part}/ folder")
        own = images_in(root, said)
        classes = [(sub.name, images_in(sub, said)) for sub in class_folders(root)]
        deeper = [] if own else [sub for sub in class_folders(root) if _has_classes(sub)]
    except OSError as error:
        raise InputError(f"{shown(folder)} cannot be read ({reason(error)})") from error
    said += [f"{shown(name)}: no photo in this folder" for name, images in classes if not images]
    classes = [(name, images) for name, images in classes if images]
    if own and classes:
        raise InputError(
            f"{shown(root)} holds photos ({shown(own[0].name)}) and folders of photos "
            f"({shown(classes[0][0])}): give one or the other"
        )
    if own:
        classes = [(root.resolve().name, own)]
    if not classes:
        hint = f"; did you mean {shown(deeper[0])}?" if deeper else ""
        raise InputError(
            f"{shown(root)} holds no photos: expected {shown(root)}/<class>/<photo>.jpg{hint}"
        )
    paths = [path for _, images in classes for path in images]
    names = [name for name, images in classes for _ in images]
    return paths, names


def _has_classes(folder: Path) -> bool:
    return any(images_in(sub, []) for sub in class_folders(folder))
