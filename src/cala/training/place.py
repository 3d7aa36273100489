"""The folder of a training run: its files, one process at a time, and whose run it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from cala.errors import InputError
from cala.files import clear_leftovers, reason, shown

CHECKPOINT, ENCODER, LOG, CONFIG = (
    "checkpoint.safetensors",
    "encoder.safetensors",
    "log.jsonl",
    "config.json",
)


@contextmanager
def held(out: Path) -> Iterator[None]:
    """The folder, made if need be, for this process alone; leftovers of killed ones are cleared."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the folder {shown(out)} cannot be made ({reason(error)})") from error
    lock = FileLock(out / "lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(
            f"another process is training in {shown(out)}: wait for it, or choose another folder"
        ) from None
    except OSError as error:
        raise InputError(
            f"the folder {shown(out)} cannot be written ({reason(error)}): choose another one"
        ) from error
    try:
        for name in (CHECKPOINT, ENCODER, LOG, CONFIG):
            clear_leftovers(out / name)
        yield
    finally:
        lock.release()


def check_same(found: dict[str, Any], wanted: dict[str, Any], path: Path) -> None:
    """Raise if a checkpoint is of a run with other options; what differs is named."""
    others = _differences(found, wanted)
    if others:
        raise InputError(
            f"{shown(path)} is of another run: its {'; its '.join(others)}. Use the same options, "
            "or another folder"
        )


def _differences(found: dict[str, Any], wanted: dict[str, Any], above: str = "") -> list[str]:
    """`seed is 0, not 1`, for every value that differs."""
    texts: list[str] = []
    for key in dict.fromkeys([*wanted, *found]):
        one, two = found.get(key), wanted.get(key)
        if one == two:
            continue
        if isinstance(one, dict) and isinstance(two, dict):
            texts += _differences(one, two, f"{above}{key}.")
        else:
            texts.append(f"{above}{key} is {_short(one)}, not {_short(two)}")
    return texts


def _short(value: Any) -> str:
    text = json.dumps(value)
    return shown(text if len(text) < 100 else f"{text[:97]}…")
