"""Groups of arrays in files that are named after their content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cala.errors import InputError
from cala.files import reason, shown, write_bytes
from cala.store.content import Arrays

SUFFIX = ".safetensors"


def write_blob(folder: Path, arrays: Arrays) -> str:
    """Write a group unless it is there already; returns its name, the SHA-256 of the file."""
    data = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    name = hashlib.sha256(data).hexdigest()
    path = folder / f"{name}{SUFFIX}"
    if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != name:
        write_bytes(path, data)
    return name


def read_blob(folder: Path, name: str) -> Arrays:
    """The group of that name, every byte of it checked."""
    path = folder / f"{name}{SUFFIX}"
    try:
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != name:
            raise ValueError("its checksum does not fit its name: a byte is wrong")
        return load(data)
    except FileNotFoundError:
        raise
    except KeyError as error:
        raise InputError(
            f"{shown(path)} holds numbers of a type that is not read here ({error.args[0]}): make "
            "the model again with `cala fit`"
        ) from error
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(
            f"{shown(path)} is damaged ({reason(error)}): put back a copy of it, or go back to the "
            f"last version that is whole with `cala undo {shown(folder.parent)}`"
        ) from error


def drop_blobs(folder: Path, keep: Iterable[str]) -> None:
    """Delete what no version needs, and what writers that were killed have left."""
    needed = {f"{name}{SUFFIX}" for name in keep}
    for path in folder.iterdir():
        if path.name not in needed:
            with suppress(OSError):
                path.unlink()
