"""How cala stores data: named arrays and a JSON header in one safetensors file.

A storage file says what it is (`kind`, `version`) and contains a JSON object (`meta`), NumPy arrays
and a SHA-256 of all of it, which is checked on reading. It is written to a temporary file, flushed
and renamed, so that readers see either the old file or the new one, never a part. Any program that
reads safetensors can read the arrays. cala never uses pickle.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from cala.errors import DamagedFile, InputError, StateError
from cala.files import atomic, make_folder, read_whole, reason, shown, write_text

Meta = dict[str, Any]


@dataclass(frozen=True)
class FileKind:
    """A kind of file: the version that cala writes, and how to replace a damaged file."""

    version: int
    fix: str


AGAIN = "put back a copy of it, or delete it and rerun the command that wrote it"
#: Every kind of file that cala writes. A version goes up when older programs would
#: misread the file.
FILE_KINDS = {
    "artifact": FileKind(3, "rerun `cala run`"),
    "checkpoint": FileKind(3, "delete it and start the training again"),
    "embeddings": FileKind(1, AGAIN),
    "encoder": FileKind(2, "put back a copy of it, or train the encoder again with `cala train`"),
    "export": FileKind(1, "clear it with `cala cache clear exports`"),
    "images": FileKind(2, "clear it with `cala cache clear images`"),
    "model": FileKind(
        1, "restore a copy of it, or go back to the last intact version with `cala undo`"
    ),
    "session": FileKind(2, "delete it; it is computed again"),
    "shard": FileKind(2, AGAIN),
    "shards": FileKind(1, AGAIN),  # a JSON document, as `read_json` reads it
}


def write(path: Path, kind: str, meta: Meta, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write a file in one step; it is on disk when this returns.

    Parameters
    ----------
    path : Path
        Its folder must exist. An existing file is replaced.
    kind : str
        One of `FILE_KINDS`.
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

    arrays, header = _sealed(kind, meta, tensors)
    try:
        with atomic(path) as temporary:
            save_file(arrays, temporary, header)
    except (OSError, SafetensorError) as error:
        raise not_written(path, error) from error


def packed(kind: str, tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of a small file without `meta`, for a caller that names the file after them."""
    from safetensors.numpy import save

    return save(*_sealed(kind, {}, tensors))


def _sealed(
    kind: str, meta: Meta, tensors: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays of a file and its header; equal content gives equal bytes."""
    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    header = {"kind": kind, "version": FILE_KINDS[kind].version, "meta": meta}
    header["sha256"] = checksum(header, arrays)
    # One entry, since safetensors does not keep the order of several.
    return arrays, {"cala": json.dumps(header)}


def read(
    path: Path,
    kind: str,
    old: Callable[[dict[str, str]], Meta] | None = None,
    *,
    mapped: bool = False,
    check: bool = True,
) -> tuple[Meta, dict[str, NDArray[Any]]]:
    """Read `meta` and the arrays of a file that `write` wrote, and check every byte.

    Parameters
    ----------
    path : Path
    kind : str
        One of `FILE_KINDS`; a file of another kind is refused.
    old : callable, optional
        Makes `meta` from the header of a file that was written before there were kinds. It raises
        ValueError, KeyError or TypeError if the header does not belong to such a file.
    mapped : bool, default=False
        Return read-only memory maps, for arrays that are too large for memory.
    check : bool, default=True
        Compute the checksum, which reads every byte.

    Raises
    ------
    InputError
        With the code `missing_file`, `unreadable_file`, `other_kind`, `newer_file` or
        (DamagedFile) `damaged_file`.
    """
    with _opened(path, FILE_KINDS[kind].fix) as file:
        found = file.metadata() or {}
        header = _parsed(found.get("cala", ""))
        sealed = "kind" in header or any('"sha256"' in text for text in found.values())
        is_old = old is not None and not sealed
        meta = _old_meta(path, kind, found, old) if is_old else header.get("meta")
        version = header.get("version")
        if not is_old and header.get("kind") != kind:
            raise _other(path, kind, f"its kind is {header.get('kind')!r}")
        if not is_old and isinstance(version, int) and version > FILE_KINDS[kind].version:
            raise newer(path, f"{kind} version {version}", FILE_KINDS[kind].version)
        arrays = _maps(path, file, file.keys()) if mapped else _tensors(path, file)
        seal = header.pop("sha256", None)
        whole = is_old or not check or seal == checksum(header, arrays)
        if not whole or not isinstance(meta, dict):
            raise ValueError("its checksum does not match: the content changed")
    return meta, arrays


def _tensors(path: Path, file: Any) -> dict[str, NDArray[Any]]:
    found = {}
    for name in file.keys():  # noqa: SIM118
        if file.get_slice(name).get_dtype() == "BF16":
            # NumPy has no bfloat16, which is the upper half of a float32.
            halves = _maps(path, file, [name])[name].astype(np.uint32)
            found[name] = (halves << 16).view(np.float32)
        else:
            found[name] = file.get_tensor(name)
    return found


def _maps(path: Path, file: Any, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Memory maps of the arrays; safetensors checks their offsets but does not expose them."""
    with path.open("rb") as raw:
        length = int.from_bytes(raw.read(8), "little")
        places = json.loads(raw.read(length))
    maps: dict[str, NDArray[Any]] = {}
    for name in names:
        part = file.get_slice(name)
        offset = 8 + length + places[name]["data_offsets"][0]
        maps[name] = np.memmap(path, _NUMPY[part.get_dtype()], "r", offset, tuple(part.get_shape()))
    return maps


_NUMPY = {"BF16": "<u2", "U8": "u1", "I32": "<i4", "I64": "<i8", "F16": "<f2", "F32": "<f4"}


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


def newer(path: Path, found: str, known: int, code: str = "newer_file") -> InputError:
    """The error for a file that a newer version of cala wrote."""
    what = f"was written by a newer cala ({found}; this one reads up to {known})"
    return _error(path, what, "use that version of cala", code)


def not_written(path: Path, error: Exception) -> InputError:
    """The error for a file that cannot be written."""
    before = "; the previous file is still there" if path.is_file() else ""
    what = f"cannot be written ({reason(error)}){before}"
    return _error(path, what, "free some space, or choose another folder", "not_written")


def _other(path: Path, kind: str, why: str) -> InputError:
    what = f"is not a file of kind {kind} ({why})"
    return _error(path, what, "check the path", "other_kind")


def _error(path: Path, what: str, fix: str, code: str) -> InputError:
    return InputError(f"{shown(path)} {what}", fix, field="path", code=code)


@contextmanager
def _opened(path: Path, fix: str) -> Iterator[Any]:
    """Open a safetensors file, and close it at once afterwards so that no mapped page is kept."""
    from safetensors import SafetensorError, safe_open

    try:
        with path.open("rb"):  # safetensors says "not found" whatever the reason
            pass
        with safe_open(path, "np") as file:
            yield file
    except InputError:
        raise
    except SafetensorError as error:
        why = "it is cut short, or not a safetensors file"
        raise DamagedFile(shown(path), why, fix) from error
    except OSError as error:
        raise unreadable(path, error) from error
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        # AttributeError: of a type of numbers that NumPy does not have
        raise DamagedFile(shown(path), reason(error), fix) from error


def unreadable(path: Path, error: OSError) -> InputError:
    """For a missing file, or a passing fault such as too many open files: it is not damaged."""
    if isinstance(error, FileNotFoundError):
        return _error(path, "does not exist", "check the path", "missing_file")
    fix = "check its permissions and the limits of this machine"
    return _error(path, f"cannot be read ({reason(error)})", fix, "unreadable_file")


def checksum(header: Meta, arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of a header and arrays; safetensors itself detects only a wrong length."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True, allow_nan=False).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.name} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def write_json(path: Path, kind: str, content: Meta) -> None:
    """Write a JSON document with its version in one step."""
    text = json.dumps({"schema": FILE_KINDS[kind].version, **content}, indent=1, allow_nan=False)
    try:
        write_text(path, text + "\n")
    except OSError as error:
        raise not_written(path, error) from error


def read_json(path: Path, kind: str) -> Meta:
    """Read a JSON document of the version that this program knows."""
    fix, known = FILE_KINDS[kind].fix, FILE_KINDS[kind].version
    try:
        content = json_object(path, fix)
    except OSError as error:
        raise unreadable(path, error) from error
    schema = content.pop("schema", None)
    if isinstance(schema, int) and schema > known:
        raise newer(path, f"schema {schema}", known)
    if schema != known:
        raise DamagedFile(shown(path), f"its schema is {schema!r}, not {known}", fix)
    return content


def json_object(path: Path, fix: str) -> Meta:
    """Read a JSON object; anything else is a `DamagedFile`, and an OSError is passed on."""
    try:
        found = json.loads(read_whole(path))
    except (ValueError, RecursionError) as error:
        raise DamagedFile(shown(path), reason(error), fix) from error
    if not isinstance(found, dict):
        raise DamagedFile(shown(path), "it is not a JSON object", fix)
    return found


class StoredTensors:
    """The arrays of a safetensors file, read a few rows at a time.

    The file is opened for each read, so that thousands of files need no descriptors and no memory,
    and a file that was cut short or replaced in the meantime is detected. The checksum is not
    checked.

    Attributes
    ----------
    shapes : dict of str to tuple of int
    dtypes : dict of str to str
        As safetensors names them, such as `F32`.
    """

    def __init__(self, path: Path, fix: str = AGAIN) -> None:
        self.path, self.fix = path, fix
        with _opened(path, fix) as file:
            found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            self.shapes = {name: tuple(part.get_shape()) for name, part in found.items()}
            self.dtypes = {name: str(part.get_dtype()) for name, part in found.items()}

    def read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Read rows start..stop-1 of an array, by default all."""
        with self._slice(name) as part:
            return np.asarray(part[start : self.shapes[name][0] if stop is None else stop])

    def take(self, name: str, rows: NDArray[Any]) -> NDArray[Any]:
        """Read rows (k,) in any order, without reading the rows between them."""
        with self._slice(name) as part:
            return np.stack([part[row : row + 1][0] for row in rows.tolist()])

    @contextmanager
    def _slice(self, name: str) -> Iterator[Any]:
        with _opened(self.path, self.fix) as file:
            part, known = file.get_slice(name), (self.shapes[name], self.dtypes[name])
            if (tuple(part.get_shape()), part.get_dtype()) != known:
                raise ValueError("it was replaced while it was being read")
            yield part


@contextmanager
def locked(path: Path, what: str, timeout: float = -1) -> Iterator[None]:
    """Hold the lock file `path`, so that one process at a time works on `what`.

    timeout : seconds to wait, -1 to wait forever
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=timeout)
    except Timeout:
        raise StateError(
            f"{what} is in use by another process", "wait until it has finished", code="in_use"
        ) from None
    except OSError as error:
        raise not_written(path, error) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def locked_folder(folder: Path, lock: str = ".lock") -> Iterator[None]:
    """Create a folder and hold its lock; an error if another process holds it."""
    try:
        make_folder(folder)
    except OSError as error:
        detail = f"the folder {shown(folder)} cannot be created ({reason(error)})"
        raise InputError(detail, "choose another one", field="out", code="not_written") from error
    with locked(folder / lock, shown(folder), timeout=0):
        yield
