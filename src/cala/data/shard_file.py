"""One shard on disk: a safetensors file that is written in one step and read where it lies."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cala.errors import InputError
from cala.files import reason, shown, write_bytes

#: Members of a shard with the kinds that each may have, in safetensors' names.
KINDS = {
    "x": ("F16", "F32"),
    "y": ("I64",),
    "holdout": ("U8",),
    "pairs": ("I64",),
    "names": ("U8",),
    "name_ends": ("I64",),
}
NUMPY = {"F16": np.float16, "F32": np.float32, "I64": np.int64, "U8": np.uint8}
MAX_HEADER = 1 << 20


@dataclass(frozen=True)
class Member:
    """Where an array lies in a file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int


def write_shard(path: Path, members: dict[str, NDArray[Any]]) -> None:
    """Write a shard; a process that is killed leaves none or all of it."""
    from safetensors.numpy import save

    data = save({name: np.ascontiguousarray(values) for name, values in members.items()})
    try:
        write_bytes(path, data)
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be written ({reason(error)})") from error


def read_header(path: Path, rows: int, dim: int, dtype: str) -> dict[str, Member]:
    """Where the members of a shard lie; the file must be whole and of the given shape."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(MAX_HEADER, size - 8):
                raise ValueError("its header is damaged")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        members, end = {}, 8 + length
        for name, entry in header.items():
            kind, shape, (start, stop) = (
                entry["dtype"],
                tuple(entry["shape"]),
                entry["data_offsets"],
            )
            if kind not in KINDS.get(name, ()):
                raise ValueError(f"{name} is {kind}")
            members[name] = Member(np.dtype(NUMPY[kind]), shape, 8 + length + start)
            held = int(np.prod(shape, dtype=np.int64)) * members[name].dtype.itemsize
            if min(start, *shape) < 0 or stop - start != held:
                raise ValueError(f"{name} does not fill its place")
            end = max(end, 8 + length + stop)
    except FileNotFoundError:
        raise InputError(f"{shown(path)} is missing: put it back, or encode again") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(path, reason(error)) from error
    if size < end:
        raise damaged(path, f"it is cut short, {size:,} of {end:,} bytes")
    wanted = {"x": (rows, dim), "y": (rows,), "holdout": (rows,), "pairs": (rows, 2)}
    wanted["name_ends"] = (rows,)
    for name, shape in wanted.items():
        if name in members and members[name].shape != shape:
            raise damaged(path, f"{name} is {members[name].shape}, the manifest says {shape}")
    for name in ("x", "y"):
        if name not in members:
            raise damaged(path, f"it lacks {name}")
    if members["x"].dtype != np.dtype(dtype):
        raise damaged(path, f"x is {members['x'].dtype}, the manifest says {dtype}")
    return members


def read_rows(path: Path, member: Member, start: int, stop: int) -> NDArray[Any]:
    """Rows start..stop-1 of a member, read into memory of their own."""
    shape = (stop - start, *member.shape[1:])
    array = np.empty(shape, dtype=member.dtype)
    each = member.dtype.itemsize * int(np.prod(member.shape[1:], dtype=np.int64))
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(member.offset + start * each)
            rest = array.reshape(-1).view(np.uint8).data
            while len(rest):
                got = file.readinto(rest)
                if not got:
                    raise damaged(path, "it is cut short")
                rest = rest[got:]
    except OSError as error:
        raise damaged(path, reason(error)) from error
    return array


def map_member(path: Path, member: Member) -> NDArray[Any]:
    """A member as memory that the system reads as it is asked for."""
    try:
        return np.memmap(path, member.dtype, "r", member.offset, member.shape)
    except (OSError, ValueError) as error:
        raise damaged(path, reason(error)) from error


def damaged(path: Path, why: str) -> InputError:
    return InputError(
        f"{shown(path)} cannot be used ({why}): put back a copy of it, or delete it and run the "
        "command that wrote it again"
    )
