"""Downloading an image set from where its authors publish it, and unpacking it."""

from __future__ import annotations

import json
import shutil
import tarfile
import zlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PureWindowsPath

from cala.data.cub200 import CUB_FOLDER
from cala.data.listing import below
from cala.data.sets import DATASETS
from cala.errors import InputError
from cala.files import reason, shown

_MAX_BYTES = 16 * 2**30  # of an unpacked archive

# ImageNet's terms do not allow passing its images on; `folder` is whatever the user has.
REFUSED = {
    "mini_imagenet": "its images come from ImageNet, whose terms do not allow passing them on; get "
    "ImageNet or mini-ImageNet under its own terms and lay it out as",
    "folder": "it is your own photos; lay them out as",
}


@dataclass(frozen=True)
class Archive:
    """A published file; unpacked : the folder it contains, empty if it is read as it is."""

    url: str
    md5: str
    unpacked: str = ""

    @property
    def file(self) -> str:
        return self.url.rsplit("/", 1)[-1]


def published_archive(name: str) -> Archive:
    """Return where the authors of a set publish it, and its checksum."""
    summary = DATASETS.summary(name)
    if name in REFUSED:
        raise InputError(
            f"{name} cannot be downloaded",
            f"{REFUSED[name]} {DATASETS[name].layout}",
            field="dataset",
            code="not_public",
        )
    text = resources.files("cala.data").joinpath(f"manifests/{name}.json").read_text("utf-8")
    entry = json.loads(text).get("archive")
    if entry is None:
        raise InputError(f"no download of {summary} is known", field="dataset")
    return Archive(entry["url"], entry["md5"], CUB_FOLDER if name == "cub200" else "")


def download(name: str, target: str | Path) -> Path:
    """Download a set into the folder `target` and return the path for `open_images`.

    A file that is already there and has the right checksum is not downloaded again.
    """
    archive = published_archive(name)
    target = Path(target)
    place, unpacked = target / archive.file, target / archive.unpacked
    if archive.unpacked and DATASETS[name].recognise(unpacked):
        return unpacked
    by_hand = f"download {archive.url} on another machine and put it at {shown(place)}"
    retrieve(archive.url, place, f"md5:{archive.md5}", by_hand)
    if not archive.unpacked:
        return place
    inner = target / f".{archive.unpacked}.archive"
    unpack(place, inner)
    try:
        (inner / archive.unpacked).rename(unpacked)
    except OSError as error:
        raise InputError(f"{shown(place)} contains no {archive.unpacked}", by_hand) from error
    finally:
        shutil.rmtree(inner, ignore_errors=True)
    return unpacked


def retrieve(source: str, place: Path, known_hash: str | None, fix: str) -> None:
    """Get a file from a URL or a path; `place` appears only if its hash is right.

    A file that is already there and has the right hash is not fetched again.
    """
    import pooch  # takes a while to import, and most runs download nothing

    def copy(source: str, target: str, _: object) -> None:
        shutil.copyfile(source, target)

    pooch.get_logger().setLevel("ERROR")
    web = pooch.HTTPDownloader(timeout=30)
    try:
        pooch.retrieve(
            source,
            known_hash=known_hash,
            fname=place.name,
            path=place.parent,
            downloader=web if "://" in source else copy,
        )
    except Exception as error:  # network layers raise many kinds
        why = f"{type(error).__name__}: {reason(error)}"
        detail = f"{shown(source)} cannot be downloaded ({why})"
        raise InputError(detail, fix, code="not_downloaded") from error


def unpack(archive: Path, target: Path, max_bytes: int = _MAX_BYTES) -> None:
    """Unpack a tar archive into `target`, which appears only when all of it is there.

    Links, devices, paths that lead out of `target` and more than `max_bytes` are refused.
    """
    if target.exists():
        detail = f"{shown(target)} exists"
        raise InputError(detail, "remove it to unpack again", code="exists")
    fresh = target.with_name(f".{target.name}.unpacking")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        with tarfile.open(archive) as opened:
            opened.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
            left = max_bytes
            for member in opened:
                left -= member.size
                _check_member(member, fresh, shown(archive), left)
                opened.extract(member, fresh)
        fresh.rename(target)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        detail = f"{shown(archive)} cannot be unpacked ({reason(error)})"
        raise InputError(detail, "download it again", code="damaged_file") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _check_member(member: tarfile.TarInfo, root: Path, source: str, left: int) -> None:
    below(root, member.name, source)
    name = f"{source} contains {shown(member.name)!r}"
    if "\\" in member.name or PureWindowsPath(member.name).drive:
        raise InputError(f"{name}, which may lead out of it", code="outside")
    if not member.isreg() and not member.isdir():
        raise InputError(f"{name}, a link or device", code="not_a_file")
    if left < 0:
        raise InputError(f"{source} is too large when unpacked", code="too_large")
