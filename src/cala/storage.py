"""The one way to the disk: named arrays and a JSON header in one safetensors file.

A storage file says what it is (`kind`, `version`), carries a JSON object (`meta`) and NumPy arrays,
and holds a SHA-256 over all of it that is checked when it is read. It is written aside, flushed
and renamed, so that readers see the old file or the new one, never a part. Any program that reads
safetensors reads its arrays. No pickle anywhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from cala.errors import DamagedFile, InputError, StateError
from cala.files import atomic, reason, shown

Array = NDArray[Any]
Meta = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of storage file: the version that is written, and how to get a good file again."""

    version: int
    fix: str


AGAIN = "put back a copy of it, or delete it and rerun the command that wrote it"
#: Every kind of file that cala writes. A version counts up when older programs would misread it.
KINDS = {
    "artifact": Kind(3, "rerun `cala run`"),
    "checkpoint": Kind(3, "delete it and start the training again"),
    "embeddings": Kind(1, AGAIN),
    "encoder": Kind(2, "put back a copy of it, or train the encoder again with `cala train`"),
    "images": Kind(2, "clear it with `cala cache clear images`"),
    "model": Kind(1, "put back a copy of it, or go back to the last good version with `cala undo`"),
    "session": Kind(2, "delete it; it is computed again"),
    "shard": Kind(2, AGAIN),
}


def write(path: Path, kind: str, meta: Meta, tensors: Mapping[str, Array]) -> None:
    """Write a file in one step; when this returns it is on the disk.

    Parameters
    ----------
    path : Path
        Its folder must exist. A file that is there already is replaced.
    kind : str
        One of `KINDS`.
    meta : dict
        Whatever JSON can hold; NaN and infinity are refused.
    tensors : mapping of str to array
        Arrays of numbers or bool, of any shape.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp()) / "my.safetensors"
    >>> write(path, "embeddings", {"encoder": "mine"}, {"x": np.eye(2)})
    >>> meta, tensors = read(path, "embeddings")
    >>> meta["encoder"], tensors["x"].shape
    ('mine', (2, 2))
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    header = {"kind": kind, "version": KINDS[kind].version, "meta": meta}
    header["sha256"] = checksum(header, arrays)
    try:
        with atomic(path) as temporary:
            # One entry: of several, safetensors does not keep the order, and equal content is to
            # give equal bytes.
            save_file(arrays, temporary, metadata={"cala": json.dumps(header)})
    except (OSError, SafetensorError) as error:
        before = "; the file before it is still there" if path.exists() else ""
        raise InputError(
            f"{shown(path)} cannot be written ({reason(error)}){before}",
            "free some space, or choose another folder",
            field="path",
            code="not_written",
        ) from error


def read(
    path: Path, kind: str, old: Callable[[dict[str, str]], Meta] | None = None
) -> tuple[Meta, dict[str, Array]]:
    """`meta` and the arrays of a file that `write` wrote, every byte of it checked.

    Parameters
    ----------
    path : Path
    kind : str
        One of `KINDS`; a file of another kind is refused.
    old : callable, optional
        Makes `meta` from the header of a file that was written before there were kinds. It raises
        ValueError, KeyError or TypeError if the header is not of such a file.

    Raises
    ------
    InputError
        With the code `missing_file`, `other_kind`, `newer_file` or (DamagedFile) `damaged_file`.
    """
    fix = KINDS[kind].fix
    with _opened(path, fix) as file:
        found = file.metadata() or {}
        header = _parsed(found.get("cala", ""))
        is_old = "kind" not in header and old is not None
        meta = _old_meta(path, kind, found, old) if is_old else header.get("meta")
        version = header.get("version")
        if not is_old and header.get("kind") != kind:
            raise _other(path, kind, f"its kind is {header.get('kind')!r}")
        if not is_old and isinstance(version, int) and version > KINDS[kind].version:
            raise newer(path, f"{kind} version {version}", KINDS[kind].version)
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        sealed = is_old or header.pop("sha256", None) == checksum(header, arrays)
        if not sealed or not isinstance(meta, dict):
            raise ValueError("its checksum does not fit: a byte is wrong")
    return meta, arrays


def _old_meta(path: Path, kind: str, header: dict[str, str], old: Any) -> Meta:
    try:
        return dict(old(header))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _other(path, kind, reason(error)) from error


def _parsed(text: str) -> Meta:
    """The JSON object in a text; empty if there is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def newer(path: Path, found: str, known: int) -> InputError:
    """The error for a file that a later version of this program wrote."""
    return InputError(
        f"{shown(path)} was written by a newer cala ({found}; this one reads up to {known})",
        "use that version of cala",
        field="path",
        code="newer_file",
    )


def _other(path: Path, kind: str, why: str) -> InputError:
    return InputError(
        f"{shown(path)} is not a file of kind {kind} ({why})",
        "check the path",
        field="path",
        code="other_kind",
    )


@contextmanager
def _opened(path: Path, fix: str) -> Iterator[Any]:
    """A safetensors file; it is closed at once afterwards, so that no mapped page is kept."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            yield file
    except FileNotFoundError as error:
        detail = f"{shown(path)} does not exist"
        raise InputError(detail, "check the path", field="path", code="missing_file") from error
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise DamagedFile(shown(path), reason(error), fix) from error


def checksum(header: Meta, arrays: Mapping[str, Array]) -> str:
    """SHA-256 of a header and arrays: safetensors itself notices only a wrong length."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True, allow_nan=False).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.name} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


class StoredTensors:
    """The arrays of a safetensors file, read a few rows at a time.

    The file is opened for each read: thousands of them cost no descriptors and no memory, and one
    that was cut short or replaced in the meantime is noticed. Its checksum is not looked at.

    Attributes
    ----------
    shapes : dict of str to tuple of int
    dtypes : dict of str to str
        In safetensors' names, such as `F32`.
    """

    def __init__(self, path: Path, fix: str = AGAIN) -> None:
        self.path, self.fix = path, fix
        with _opened(path, fix) as file:
            found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            self.shapes = {name: tuple(part.get_shape()) for name, part in found.items()}
            self.dtypes = {name: str(part.get_dtype()) for name, part in found.items()}

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Array:
        """Rows start..stop-1 of an array, by default all."""
        with self._slice(name) as part:
            return np.asarray(part[start : self.shapes[name][0] if stop is None else stop])

    def take(self, name: str, rows: Array) -> Array:
        """Rows (k,) in any order; the rows between them are not read."""
        with self._slice(name) as part:
            return np.stack([part[row : row + 1][0] for row in rows.tolist()])

    @contextmanager
    def _slice(self, name: str) -> Iterator[Any]:
        with _opened(self.path, self.fix) as file:
            part = file.get_slice(name)
            if (tuple(part.get_shape()), part.get_dtype()) != (
                self.shapes[name],
                self.dtypes[name],
            ):
                raise ValueError("it was replaced while it was being read")
            yield part


def open_rows(path: Path, fix: str = AGAIN) -> StoredTensors:
    """Open any safetensors file to read slices of its arrays."""
    return StoredTensors(path, fix)


def map_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a file as read-only memory maps, for arrays that are too large to read."""
    known = open_rows(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    maps: dict[str, Array] = {}
    for name, shape in known.shapes.items():
        dtype = np.dtype(_NUMPY[known.dtypes[name]])
        offset = 8 + length + header[name]["data_offsets"][0]
        maps[name] = np.memmap(path, dtype, "r", offset, shape)
    return maps


_NUMPY = {"U8": "u1", "I32": "<i4", "I64": "<i8", "F16": "<f2", "F32": "<f4"}


@contextmanager
def locked(path: Path, what: str, timeout: float = -1) -> Iterator[None]:
    """Hold the lock file `path`, so that one process at a time works on `what`.

    timeout : seconds to wait, -1 for ever
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=timeout)
    except Timeout:
        raise StateError(
            f"{what} is in use by another process", "wait until it has finished", code="in_use"
        ) from None
    except OSError as error:
        raise InputError(
            f"{what} cannot be locked ({reason(error)})",
            "check that you may write there, or choose another folder",
            code="not_written",
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def locked_folder(folder: Path, lock: str = ".lock") -> Iterator[None]:
    """Create a folder, and hold its lock: an error if another process does."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        detail = f"the folder {shown(folder)} cannot be created ({reason(error)})"
        raise InputError(detail, "choose another one", field="out", code="not_written") from error
    with locked(folder / lock, shown(folder), timeout=0):
        yield
