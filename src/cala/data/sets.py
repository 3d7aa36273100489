"""The registry of image sets: each knows its layouts on disk and how to open them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from cala.data.decoding import MAX_PIXELS
from cala.data.images import ImageSet
from cala.data.protocol import MANIFESTS
from cala.errors import InputError
from cala.files import reason, shown
from cala.registry import Registry, check_choice

ON_BAD = ("raise", "skip")


class DataSet(ABC):
    """One kind of image set on disk.

    Subclass it, set the attributes, implement `recognise` and `open`, and register an instance in
    `DATASETS`.

    Attributes
    ----------
    name : str
        The name it is registered by.
    layout : str
        One line that tells a user which files must be where.
    options : tuple of str
        Names of the keyword arguments that `open` takes besides `on_bad` and `max_pixels`.
    general : bool
        Whether it fits many folders, so that it is tried after all others.

    Examples
    --------
    >>> DATASETS["cub200"].layout
    'the folder CUB_200_2011/ with images.txt, ...'
    >>> DATASETS["folder"].options
    ('holdout', 'seed')
    """

    name: str
    layout: str
    options: tuple[str, ...] = ()
    general: bool = False

    @abstractmethod
    def recognise(self, path: Path) -> bool:
        """Return whether `path` looks like this set and no other; cheap, reads no pixels."""

    def fits(self, path: Path) -> bool:
        """Return whether `path` can be opened as this set if a user says that it is one."""
        return self.recognise(path)

    @abstractmethod
    def open(self, path: Path, on_bad: str, max_pixels: int, **options: Any) -> ImageSet:
        """Open the set at `path`, which `fits`.

        Missing or unreadable images raise, or are left out if `on_bad` is `skip`; larger images
        than `max_pixels` count as unreadable.
        """


DATASETS: Registry[DataSet] = Registry("data set")


def recognise(path: str | Path) -> str | None:
    """Return the name of the set at `path`, or None."""
    names = sorted(DATASETS, key=lambda name: DATASETS[name].general)
    try:
        return next((name for name in names if DATASETS[name].recognise(Path(path))), None)
    except OSError as error:
        detail = f"{shown(path)} cannot be read ({reason(error)})"
        raise InputError(detail, field="path", code="unreadable_file") from error


def open_images(
    path: str | Path,
    dataset: str | None = None,
    on_bad: str = "raise",
    max_pixels: int = MAX_PIXELS,
    **options: Any,
) -> ImageSet:
    """Open an image set.

    Parameters
    ----------
    path : str or Path
        The folder or archive of the set.
    dataset : str, optional
        The kind of set, a name in `DATASETS`; recognised by its layout if not given.
    on_bad : {"raise", "skip"}, default="raise"
        Whether missing and unreadable images raise an error or are left out, which reads all of
        them once.
    max_pixels : int
        Larger images are refused before they are decoded.
    **options
        Options of the set, such as `holdout=0.2, seed=0` for `folder`.

    Returns
    -------
    ImageSet
        Labels and names at once, pixels when they are asked for.
    """
    path = Path(path)
    check_choice("value of on_bad", on_bad, ON_BAD, "on_bad")
    if not isinstance(max_pixels, int) or isinstance(max_pixels, bool) or max_pixels < 1:
        raise InputError(f"max_pixels is {max_pixels!r}", "use 1 or more", field="max_pixels")
    try:
        path.stat()
    except (OSError, ValueError) as error:
        detail = f"{shown(path)} cannot be read ({reason(error)})"
        raise InputError(detail, field="path", code="unreadable_file") from error
    name = dataset if dataset is not None else recognise(path)
    if name is None:
        layouts = "; ".join(f"{known}: {DATASETS[known].layout}" for known in DATASETS)
        packed = "unpack it first, if it is an archive. " if path.is_file() else ""
        raise InputError(
            f"{shown(path)} is not laid out like any known image set",
            f"{packed}Known layouts: {layouts}",
            field="path",
            code="bad_layout",
        )
    entry = DATASETS[name]
    unknown = [option for option in options if option not in entry.options]
    if "holdout" in unknown:
        raise InputError(
            f"{name} has test images of its own",
            "leave out --test (holdout), or open it as your own photos with --as folder",
            field="holdout",
        )
    if unknown:
        known_options = ", ".join(("max_pixels", *entry.options))
        detail = f"{name} has no option {unknown[0]}"
        raise InputError(detail, f"use {known_options}", field=unknown[0])
    try:
        if not entry.fits(path):
            detail = f"{shown(path)} does not have the layout of {name}"
            raise InputError(detail, f"expected {entry.layout}", field="path", code="bad_layout")
        return entry.open(path, on_bad, max_pixels, **options)
    except OSError as error:
        detail = f"{shown(path)} cannot be read as {name} ({reason(error)})"
        raise InputError(detail, field="path") from error


def locate(
    dataset: str, data: Path | None = None, kind: str | None = None
) -> tuple[Path, str | None]:
    """Return the path of a set and the layout to expect there (None: recognise it).

    dataset : a path, or a benchmark's name; a benchmark is looked for in `data`, in $CALA_DATA
        and in `data/` of the working directory, where `cala data get` puts it
    kind : the layout to expect, regardless of the name
    """
    if kind is not None:
        check_choice("data set", kind, DATASETS, "dataset")
    if dataset not in MANIFESTS:
        path = data if data is not None else Path(dataset)
        return path, kind or (dataset if dataset in DATASETS else None)
    if data is not None:
        return data, kind or dataset
    given, entry = os.environ.get("CALA_DATA"), DATASETS[dataset]
    for root in (*([Path(given)] if given else []), Path("data")):
        try:
            inside = sorted(p for p in root.iterdir() if p.is_dir()) if root.is_dir() else []
            fitting = [p for p in (root, *inside) if entry.fits(p)]
            found = [p for p in fitting if entry.recognise(p)] or fitting
        except OSError:
            continue
        if found:
            return found[0], kind or dataset
    raise InputError(
        f"there is no copy of {dataset} in data/" + (f" or {shown(given)}" if given else ""),
        f"give --data DIR, where DIR contains {entry.layout}",
        field="data",
        code="not_found",
    )
