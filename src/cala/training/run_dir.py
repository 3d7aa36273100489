"""The folder of a training run: its files, its lock, and whose run it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cala.errors import InputError, install
from cala.files import clear_leftovers, shown
from cala.storage import locked_folder

CHECKPOINT = "checkpoint.safetensors"
ENCODER = "encoder.safetensors"
LOG = "log.jsonl"
CONFIG = "config.json"


@contextmanager
def locked_run(out: Path) -> Iterator[None]:
    """The folder for this process alone, created if need be; removes leftovers of killed ones."""
    with locked_folder(out, "lock"):
        for name in (CHECKPOINT, ENCODER, LOG, CONFIG):
            clear_leftovers(out / name)
        yield


def begun_error(out: Path) -> InputError:
    """The error for a folder with a run, without --resume."""
    return InputError(
        f"{shown(out)} already holds a training run",
        "add --resume to continue it, or choose another folder",
        field="resume",
        code="already_begun",
    )


def check_same(found: dict[str, Any], wanted: dict[str, Any], path: Path) -> None:
    """Raise if a checkpoint is of a run with other options, naming what differs."""
    others = _differences(found, wanted)
    if others:
        raise InputError(
            f"{shown(path)} is of another run: its {'; its '.join(others)}",
            "use the same options, or another folder",
            field="out",
            code="another_run",
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


def epoch_events(folder: Path) -> Callable[[dict[str, Any]], None]:
    """A function that writes a line of the log as TensorBoard events."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError(
            "--tensorboard needs tensorboard", install("train"), field="tensorboard"
        ) from error
    writer = SummaryWriter(str(folder / "tensorboard"))

    def write(line: dict[str, Any]) -> None:
        for name, value in line.items():
            if name not in ("epoch", "step"):
                writer.add_scalar(name, value, line["epoch"])
        writer.flush()

    return write
