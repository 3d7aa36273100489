"""The registry of image sets: each knows its layouts on disk and how to open them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cala.data.images import ImageSet
from cala.errors import InputError
from cala.files import reason, shown
from cala.registry import Registry, check_choice

ON_BAD = ("raise", "skip")


class DataSet(ABC):
    """One kind of image set on disk.

    name : as registered; layout : one line that tells a user what must lie where
    general : fits many folders, so it is asked only after all others
    """

    name: str
    layout: str
    general: bool = False

    @abstractmethod
    def recognise(self, path: Path) -> bool:
        """Whether `path` looks like this set and no other; cheap, reads no pixels."""

    def fits(self, path: Path) -> bool:
        """Whether `path` can be opened as this set when a user says that it is one."""
        return self.recognise(path)

    @abstractmethod
    def open(self, path: Path, on_bad: str = "raise", **options: Any) -> ImageSet:
        """The set at `path`. Missing or unreadable images raise, or are left out with `skip`.

        Every set takes the option `max_pixels`: larger images count as unreadable.
        """


DATASETS: Registry[DataSet] = Registry("data set")


def recognise(path: str | Path) -> str | None:
    """The name of the set that lies at `path`, or None."""
    names = sorted(DATASETS, key=lambda name: DATASETS[name].general)
    try:
        return next((name for name in names if DATASETS[name].recognise(Path(path))), None)
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be read ({reason(error)})") from error


def refuse_options(dataset: str, options: Mapping[str, Any]) -> None:
    """For sets that take `max_pixels` alone."""
    if "holdout" in options:
        raise InputError(
            f"{dataset} has test images of its own: leave out --test (holdout), or read the folder "
            "as your own photos with --as folder"
        )
    if options:
        raise InputError(f"{dataset} has no option {', '.join(options)}: use max_pixels")


def open_images(
    path: str | Path, dataset: str | None = None, on_bad: str = "raise", **options: Any
) -> ImageSet:
    """Open an image set; without `dataset` it is recognised by its layout.

    on_bad : `raise` names images that are missing or unreadable, `skip` leaves them out (which
        means reading all of them once)
    options : `max_pixels`, and those of the set, such as `holdout=0.2, seed=0` for `folder`
    """
    path = Path(path)
    check_choice("value of on_bad", on_bad, ON_BAD)
    try:
        path.stat()
    except (OSError, ValueError) as error:
        raise InputError(f"nothing can be read at {shown(path)} ({reason(error)})") from error
    name = dataset if dataset is not None else recognise(path)
    if name is None:
        layouts = "; ".join(f"{known}: {DATASETS[known].layout}" for known in DATASETS)
        packed = "It is a file: an archive must be unpacked first. " if path.is_file() else ""
        raise InputError(
            f"{shown(path)} is not laid out like any known image set. {packed}{layouts}"
        )
    entry = DATASETS[name]
    try:
        if not entry.fits(path):
            raise InputError(f"{shown(path)} is not laid out like {name}: {entry.layout}")
        return entry.open(path, on_bad, **options)
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be read as {name} ({reason(error)})") from error
