"""CIFAR-100 as its authors publish it: the python archive, packed or unpacked."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cala.data.cache import cached, remembered
from cala.data.decoding import MAX_PIXELS, Pixels
from cala.data.images import ArrayPixels, ImageSet, ImageSplit
from cala.data.listing import check_max_pixels
from cala.data.sets import DATASETS, DataSet, refuse_options
from cala.data.survey import fingerprint
from cala.data.unpickling import load_pickle
from cala.errors import InputError
from cala.files import CHUNK, reason, sha256_of, shown

FOLDER = "cifar-100-python"
ARCHIVES = (f"{FOLDER}.tar.gz", f"{FOLDER}.tgz", f"{FOLDER}.tar")
PARTS = ("train", "test", "meta")
SIDE = 32


class Cifar100(DataSet):
    """Images as one (n, 32, 32, 3) array per part; the name of an image is its row."""

    name = "cifar100"
    layout = f"{ARCHIVES[0]}, or the folder {FOLDER}/ with train, test and meta"

    def recognise(self, path: Path) -> bool:
        return _find(path) is not None

    def open(
        self, path: Path, on_bad: str = "raise", max_pixels: int = MAX_PIXELS, **options: Any
    ) -> ImageSet:
        refuse_options(self.name, options)
        check_max_pixels(max_pixels)
        if max_pixels < SIDE * SIDE:
            raise InputError(
                f"max_pixels is {max_pixels}: every image of cifar100 has {SIDE * SIDE:,}"
            )
        source = _find(path)
        if source is None:
            raise InputError(f"{shown(path)} is not laid out like cifar100: {self.layout}")
        files = [source] if source.is_file() else [source / part for part in PARTS]
        digests = remembered("cifar100", files, lambda: [_digest(source, part) for part in PARTS])
        content = fingerprint(self.name, [(p, 0, d) for p, d in zip(PARTS, digests, strict=True)])
        entry = cached(self.name, content, lambda folder: _build(source), source)
        splits = []
        for part in ("train", "test"):
            array = entry.arrays[part]
            labels = np.array(entry.info[part], dtype=np.int64)
            rows = np.arange(len(array))
            names = tuple(f"{part}/{row}" for row in rows)
            splits.append(ImageSplit(labels, names, ArrayPixels(array, rows)))
        count = len(splits[0]) + len(splits[1])
        return ImageSet(
            name=self.name,
            classes=tuple(entry.info["classes"]),
            train=splits[0],
            test=splits[1],
            source=path,
            identify=lambda: content,
            sizes=(((SIDE, SIDE), count),),
        )


DATASETS.register("cifar100", "CIFAR-100: 100 classes, 60,000 images of 32×32")(Cifar100())


def _find(path: Path) -> Path | None:
    """The archive or the folder with the three files, wherever a user may point."""
    if path.is_file():
        return path if _is_archive(path) else None
    for folder in (path, path / FOLDER):
        if (folder / "train").is_file() and (folder / "meta").exists():
            return folder
    if (path / FOLDER).is_dir():
        return path / FOLDER  # incomplete: opening it says what is missing
    return next((path / name for name in ARCHIVES if (path / name).is_file()), None)


def _is_archive(path: Path) -> bool:
    if path.name in ARCHIVES:
        return True
    try:
        with tarfile.open(path) as archive:
            first = archive.next()
            return first is not None and first.name.split("/")[0] == FOLDER
    except (tarfile.TarError, OSError, EOFError, zlib.error):
        return False


@contextmanager
def _opened(source: Path, part: str) -> Iterator[BinaryIO]:
    """The bytes of one of the three files; an archive is read in place, never unpacked."""
    try:
        if source.is_dir():
            with (source / part).open("rb") as file:
                yield file
            return
        with tarfile.open(source) as archive:
            member = archive.extractfile(archive.getmember(f"{FOLDER}/{part}"))
            if member is None:
                raise InputError(f"{shown(source)}: {FOLDER}/{part} is not a file: get it again")
            yield member  # type: ignore[misc]
    except FileNotFoundError as error:
        raise InputError(f"{shown(source)} lacks the file {part}: unpack it again") from error
    except KeyError as error:
        raise InputError(f"{shown(source)} lacks {FOLDER}/{part}: get it again") from error
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{shown(source)}: {part} is damaged or cut short ({reason(error)}): get it again"
        ) from error


def _digest(source: Path, part: str) -> str:
    with _opened(source, part) as file:
        return sha256_of(iter(lambda: file.read(CHUNK), b""))


def _build(source: Path) -> tuple[dict[str, Any], dict[str, Pixels]]:
    with _opened(source, "meta") as file:
        names = load_pickle(file, f"{source}: meta").get("fine_label_names")
    if not isinstance(names, list) or not all(isinstance(n, bytes | str) for n in names):
        raise InputError(f"{shown(source)}: meta holds no fine_label_names: get it again")
    info: dict[str, Any] = {
        "classes": [n.decode("utf-8", "replace") if isinstance(n, bytes) else n for n in names]
    }
    arrays = {}
    for part in ("train", "test"):
        with _opened(source, part) as file:
            arrays[part], labels = _arrays(load_pickle(file, f"{source}: {part}"), source, part)
        outside = [label for label in labels if not 0 <= label < len(names)]
        if outside:
            raise InputError(
                f"{shown(source)}: {part} has label {outside[0]}, meta has {len(names)}"
            )
        info[part] = labels
    return info, arrays


def _arrays(content: dict[str, Any], source: Path, part: str) -> tuple[Pixels, list[int]]:
    """The official (n, 3072) channel-first rows -> (n, 32, 32, 3)."""
    data, labels = content.get("data"), content.get("fine_labels")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2:
        raise InputError(f"{shown(source)}: {part} holds no array of images: get it again")
    if data.shape[1] != 3 * SIDE * SIDE:
        raise InputError(f"{shown(source)}: images of {part} have {data.shape[1]} values, not 3072")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise InputError(f"{shown(source)}: {part} holds no fine_labels; is it CIFAR-10?")
    if len(labels) != len(data):
        raise InputError(f"{shown(source)}: {part} has {len(data)} images, {len(labels)} labels")
    images = data.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), labels
