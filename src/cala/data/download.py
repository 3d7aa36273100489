"""Fetching an image set from where its authors publish it, and checking it."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from cala.data.archives import unpack
from cala.data.cub200 import FOLDER as CUB_FOLDER
from cala.data.sets import DATASETS
from cala.errors import InputError
from cala.files import chunks, reason, shown

# ImageNet's terms do not allow handing its images on; `folder` is whatever the user has.
REFUSED = {
    "mini_imagenet": "its images come from ImageNet, whose terms do not allow handing them on: get "
    "ImageNet or mini-ImageNet under its own terms and lay it out as",
    "folder": "it is your own photos: lay them out as",
}


@dataclass(frozen=True)
class Archive:
    """A published file; unpacked : the folder it holds, empty if it is read as it is"""

    url: str
    md5: str
    unpacked: str = ""

    @property
    def file(self) -> str:
        return self.url.rsplit("/", 1)[-1]


def published(name: str) -> Archive:
    """Where the authors of a set publish it, and its checksum."""
    summary = DATASETS.summary(name)
    if name in REFUSED:
        raise InputError(f"{name} cannot be downloaded: {REFUSED[name]} {DATASETS[name].layout}")
    text = resources.files("cala.data").joinpath(f"manifests/{name}.json").read_text("utf-8")
    entry = json.loads(text).get("archive")
    if entry is None:
        raise InputError(f"no place is known where {summary} is published")
    return Archive(entry["url"], entry["md5"], CUB_FOLDER if name == "cub200" else "")


def download(name: str, target: str | Path, progress: Any = False) -> Path:
    """Fetch a set into the folder `target` and return the path for `open_images`.

    A file that is already there and has the right checksum is not fetched again.
    progress : True for a bar (needs tqdm), or an object with `total`, `update`, `reset`, `close`
    """
    archive = published(name)
    target = Path(target)
    place, unpacked = target / archive.file, target / archive.unpacked
    if archive.unpacked and DATASETS[name].recognise(unpacked):
        return unpacked
    by_hand = f"fetch {archive.url} on another machine and put it at {shown(place)}"
    try:
        target.mkdir(parents=True, exist_ok=True)
        if not _matches(place, archive.md5):
            _fetch(archive, target, progress)
    except Exception as error:  # network layers raise many kinds
        raise InputError(
            f"{name} cannot be downloaded ({type(error).__name__}: {reason(error)}): {by_hand}"
        ) from error
    if not archive.unpacked:
        return place
    inner = target / f".{archive.unpacked}.archive"
    unpack(place, inner)
    try:
        (inner / archive.unpacked).rename(unpacked)
    except OSError as error:
        raise InputError(f"{shown(place)} holds no folder {archive.unpacked}: {by_hand}") from error
    finally:
        shutil.rmtree(inner, ignore_errors=True)
    return unpacked


def _matches(path: Path, md5: str) -> bool:
    if not path.is_file():
        return False
    digest = hashlib.md5(usedforsecurity=False)  # the checksum that the authors publish
    for piece in chunks(path):
        digest.update(piece)
    return digest.hexdigest() == md5


def _fetch(archive: Archive, target: Path, progress: Any) -> None:
    import pooch  # takes a while to import, and most runs download nothing

    pooch.get_logger().setLevel("ERROR")
    pooch.retrieve(
        archive.url,
        known_hash=f"md5:{archive.md5}",
        fname=archive.file,
        path=target,
        downloader=pooch.HTTPDownloader(progressbar=progress, timeout=30),
    )
