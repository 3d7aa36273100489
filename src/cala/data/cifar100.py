"""CIFAR-100 as its authors publish it: the python archive, packed or unpacked.

Its files are pickles, which are programs. Here they may build containers, strings, numbers and
arrays of bytes; every other name they use is refused.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from cala.data.cache import cached, remembered
from cala.data.decoding import Pixels
from cala.data.image_scan import set_fingerprint
from cala.data.images import ArrayPixels, ImageSet, ImageSplit
from cala.data.sets import DATASETS, DataSet
from cala.errors import DamagedFile, InputError
from cala.files import reason, shown

_FOLDER = "cifar-100-python"
ARCHIVES = (f"{_FOLDER}.tar.gz", f"{_FOLDER}.tgz", f"{_FOLDER}.tar")
PARTS = ("train", "test", "meta")
_SIDE = 32
_MAX_BYTES = 1 << 30  # of one of the three files; the largest has 155 MB


class Cifar100(DataSet):
    """Images as one (n, 32, 32, 3) array per part; the name of an image is its row."""

    name = "cifar100"
    layout = f"{ARCHIVES[0]}, or the folder {_FOLDER}/ with train, test and meta"

    def recognise(self, path: Path) -> bool:
        return _find(path) is not None

    def open(self, path: Path, on_bad: str, max_pixels: int, **options: Any) -> ImageSet:
        if max_pixels < _SIDE * _SIDE:
            detail = f"max_pixels is {max_pixels}"
            raise InputError(detail, f"use {_SIDE * _SIDE} or more", field="max_pixels")
        source = _find(path)
        assert source is not None, path
        files = [source] if source.is_file() else [source / part for part in PARTS]
        digests = remembered("cifar100", files, lambda: _digests(source))
        entries = [(part, 0, digest) for part, digest in zip(PARTS, digests, strict=True)]
        content = set_fingerprint(self.name, entries)
        entry = cached(self.name, content, lambda folder: _build(source), source)
        splits = []
        for part in ("train", "test"):
            array = entry.arrays[part]
            labels = np.array(entry.info[part], dtype=np.int64)
            rows = np.arange(len(array))
            names = tuple(f"{part}/{row}" for row in rows)
            splits.append(ImageSplit(labels, names, ArrayPixels(array, rows)))
        return ImageSet(
            name=self.name,
            classes=tuple(entry.info["classes"]),
            train=splits[0],
            test=splits[1],
            source=path,
            identify=lambda: content,
            sizes=(((_SIDE, _SIDE), len(splits[0]) + len(splits[1])),),
        )


DATASETS.register("cifar100", "CIFAR-100: 100 classes, 60,000 images of 32×32")(Cifar100())


def _find(path: Path) -> Path | None:
    """Return the archive or the folder with the three files, wherever a user may point."""
    if path.is_file():
        return path if _is_archive(path) else None
    for folder in (path, path / _FOLDER):
        if (folder / "train").is_file() and (folder / "meta").exists():
            return folder
    if (path / _FOLDER).is_dir():
        return path / _FOLDER  # incomplete: opening it says what is missing
    return next((path / name for name in ARCHIVES if (path / name).is_file()), None)


def _is_archive(path: Path) -> bool:
    if path.name in ARCHIVES:
        return True
    try:
        with tarfile.open(path) as archive:
            first = archive.next()
            return first is not None and first.name.split("/")[0] == _FOLDER
    except (tarfile.TarError, OSError, EOFError, zlib.error):
        return False


def _damaged(source: Path, part: str, why: str) -> DamagedFile:
    return DamagedFile(shown(source), f"{part}: {why}", "download it again")


def _read(source: Path, part: str) -> bytes:
    """Return the bytes of one of the three files; an archive is read in place, never unpacked."""
    try:
        if source.is_dir():
            with (source / part).open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
        else:
            with tarfile.open(source) as archive:
                member = archive.extractfile(f"{_FOLDER}/{part}")
                content = b"" if member is None else member.read(_MAX_BYTES + 1)
    except (FileNotFoundError, KeyError) as error:
        raise _damaged(source, part, "is missing") from error
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise _damaged(source, part, reason(error)) from error
    if len(content) > _MAX_BYTES:
        raise _damaged(source, part, "has more than 1 GiB")
    return content


def _digests(source: Path) -> list[str]:
    return [hashlib.sha256(_read(source, part)).hexdigest() for part in PARTS]


def _build(source: Path) -> tuple[dict[str, Any], dict[str, Pixels]]:
    names = load_pickle(_read(source, "meta"), f"{source}: meta").get("fine_label_names")
    if not isinstance(names, list) or not all(isinstance(n, bytes | str) for n in names):
        raise _damaged(source, "meta", "has no fine_label_names")
    info: dict[str, Any] = {
        "classes": [n.decode("utf-8", "replace") if isinstance(n, bytes) else n for n in names]
    }
    arrays = {}
    for part in ("train", "test"):
        arrays[part], info[part] = _arrays(source, part, len(names))
    return info, arrays


def _arrays(source: Path, part: str, classes: int) -> tuple[Pixels, list[int]]:
    """The official (n, 3072) channel-first rows -> (n, 32, 32, 3), and their labels."""
    content = load_pickle(_read(source, part), f"{source}: {part}")
    data, labels = content.get("data"), content.get("fine_labels")
    values = 3 * _SIDE * _SIDE
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (values,):
        raise _damaged(source, part, f"has no array of images of {values} bytes")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise _damaged(source, part, "has no fine_labels; is it CIFAR-10?")
    if len(labels) != len(data) or not set(labels) <= set(range(classes)):
        why = f"has {len(data)} images and {len(labels)} labels, which must be below {classes}"
        raise _damaged(source, part, why)
    images = data.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), labels


BYTES = ("u1", "i1")  # types of arrays; those of objects could hold anything
ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("_codecs", "encode"),  # how newer pickles of the old protocol write bytes
    ("builtins", "bytes"),
    ("__builtin__", "bytes"),
}


class _Name:
    """One use of an allowed name; never the real thing, and a pickle cannot change it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        """Ignore the byte order of a dtype: only single bytes are read."""

    def __call__(self, *given: Any) -> Any:
        match self.name, *(v.decode("latin1") if isinstance(v, bytes) else v for v in given):
            case "_reconstruct", _Name(name="ndarray"), *_:
                return _Array()
            case "dtype", code, *_ if code in BYTES:
                return _Name(code)
            case "encode", str() as text, "latin1":
                return text.encode("latin1")
            case ["bytes"]:  # with a number it would fill the memory
                return b""
        raise pickle.UnpicklingError(f"a call of {self.name}")


class _Array:
    """An array while a pickle describes it; `value` is the real one."""

    __slots__ = ("value",)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Name) or dtype.name not in BYTES or not isinstance(raw, bytes):
            raise pickle.UnpicklingError(f"an array of {type(raw).__name__}")
        flat = np.frombuffer(raw, dtype=dtype.name)
        self.value = flat.reshape(tuple(shape), order="F" if fortran else "C")


class RestrictedUnpickler(pickle.Unpickler):
    """Refuse every name but those in `ALLOWED`."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"the name {module}.{name}")
        return _Name(name)


def load_pickle(content: bytes, name: str) -> dict[str, Any]:
    """Return the dictionary in a pickle, with keys as text; `name` is for messages."""
    try:
        found = RestrictedUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # broken bytes lead to any kind of error
        refused = isinstance(error, pickle.UnpicklingError)
        raise InputError(
            f"{shown(name)} is damaged or not a file of CIFAR-100 ({reason(error)})",
            "download it again from its authors",
            code="refused" if refused else "damaged_file",
        ) from error
    if not isinstance(found, dict):
        detail = f"{shown(name)} holds {type(found).__name__}, not a dictionary"
        raise InputError(detail, "download it again", code="damaged_file")
    texts = (key.decode("latin1") if isinstance(key, bytes) else str(key) for key in found)
    values = (getattr(v, "value", None) if isinstance(v, _Array) else v for v in found.values())
    return dict(zip(texts, values, strict=True))
