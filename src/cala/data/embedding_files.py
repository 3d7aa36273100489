"""Embeddings files as named arrays: `.npz` or `.safetensors`; nothing is checked here."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.data.embedding_checks import OPTIONAL, PART, REQUIRED, TEXTS, Members
from cala.data.shards import is_shards
from cala.errors import InputError
from cala.files import atomic, reason, shown

KNOWN = (*REQUIRED, *OPTIONAL)
SUFFIXES = (".npz", ".safetensors")


def is_known(name: str) -> bool:
    return name in KNOWN or name.startswith(PART)


def read_members(path: Path) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """The known members of a file, and the names of whatever else is in it."""
    suffix = _suffix(path)
    try:
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist"
            raise InputError(f"no embeddings file at {shown(path)}: it {what}")
        return _READERS[suffix](path)
    except InputError:
        raise
    except Exception as error:  # readers raise whatever broken bytes lead them to
        why = f"{type(error).__name__}: {reason(error)}"
        raise InputError(
            f"{shown(path)} cannot be read as {suffix} ({why}): it is damaged or cut short, make "
            "it again"
        ) from error


def write_members(path: Path, members: Members, compress: bool = False) -> None:
    """Write in one step: readers see the old file or the new one, never a part."""
    suffix = _suffix(path)
    if compress and suffix != ".npz":
        raise InputError(f"{shown(path)}: only .npz files can be compressed")
    write = _compress_npz if compress else _WRITERS[suffix]
    try:
        with atomic(path) as temporary:
            write(temporary, members)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{shown(path)} cannot be written ({reason(error)})") from error


def check_target(path: Path) -> None:
    """Raise if `path` cannot become an embeddings file, before the work that fills it."""
    _suffix(path)
    folder = path.resolve().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"{shown(path)} cannot be written: is {shown(folder)} a folder of yours?")


def is_embeddings_file(path: str | Path) -> bool:
    """Whether the name says so."""
    return Path(path).suffix.lower() in SUFFIXES or is_shards(path)


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"{shown(path)} is no embeddings file by its name: it must end in {', '.join(SUFFIXES)}"
        )
    return suffix


def _read_npz(path: Path) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    archive = np.load(path, allow_pickle=False)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise InputError(
            f"{shown(path)} holds a single array: write it with "
            "numpy.savez(path, x_train=…, y_train=…, x_test=…, y_test=…)"
        )
    with archive:
        members = {}
        for name in archive.files:
            if not is_known(name):
                continue
            try:
                members[name] = archive[name]
            except Exception as error:
                raise InputError(
                    f"{shown(path)} cannot be read as .npz: {name} is damaged or no plain array "
                    f"({reason(error)}): make it again"
                ) from error
            if not isinstance(members[name], np.ndarray):
                raise InputError(f"{shown(path)}: {name} is no array: write it with numpy.savez")
        return members, tuple(name for name in archive.files if not is_known(name))


def _write_npz(path: Path, members: Members) -> None:
    with path.open("wb") as file:  # a path would get a second suffix
        np.savez(file, **members)  # type: ignore[arg-type]


def _compress_npz(path: Path, members: Members) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, **members)  # type: ignore[arg-type]


def _read_safetensors(path: Path) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    from safetensors import safe_open

    members: dict[str, NDArray[Any]] = {}
    with safe_open(path, "np") as file:
        names = list(file.keys())
        for name in filter(is_known, names):
            brief = file.get_slice(name).get_dtype() == "BF16"
            members[name] = _bfloat16(path, name) if brief else file.get_tensor(name)
        header = file.metadata() or {}
    for name in TEXTS:
        if name in header:
            found = json.loads(header[name])
            if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
                raise InputError(f"{shown(path)}: {name} is not a JSON list of strings")
            members[name] = np.array(found, dtype=str)
    if "provenance" in header:
        members["provenance"] = np.array(header["provenance"])
    return members, tuple(name for name in names if not is_known(name))


def _bfloat16(path: Path, name: str) -> NDArray[np.float32]:
    """A member in bfloat16, which NumPy lacks: the upper two bytes of single precision."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        member = json.loads(file.read(length))[name]
        start, stop = member["data_offsets"]
        file.seek(8 + length + start)
        upper = np.frombuffer(file.read(stop - start), dtype="<u2")
    return (upper.astype(np.uint32) << 16).view(np.float32).reshape(member["shape"])


def _write_safetensors(path: Path, members: Members) -> None:
    from safetensors.numpy import save_file

    header = {name: json.dumps(members[name].tolist()) for name in TEXTS if name in members}
    if "provenance" in members:
        header["provenance"] = str(members["provenance"])
    tensors = {
        name: np.ascontiguousarray(array) if array.ndim else array
        for name, array in members.items()
        if array.dtype.kind != "U"
    }
    save_file(tensors, path, metadata=header)


_READERS: dict[str, Callable[[Path], tuple[dict[str, NDArray[Any]], tuple[str, ...]]]] = {
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
}
_WRITERS: dict[str, Callable[[Path, Members], None]] = {
    ".npz": _write_npz,
    ".safetensors": _write_safetensors,
}
