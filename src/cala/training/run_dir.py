"""The folder of a training run: its lock, its checkpoint, and whose run it is.

Free of torch, so that commands can look into a folder before they import it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cala import storage
from cala.errors import DamagedFile, InputError
from cala.extras import needs
from cala.files import clear_leftovers, reason, shown

if TYPE_CHECKING:
    from torch import Tensor

CHECKPOINT = "checkpoint.safetensors"
ENCODER_FILE = "encoder.safetensors"
LOG_FILE = "log.jsonl"
CONFIG_FILE = "config.json"
_BEFORE_KINDS = 2  # the version of checkpoints that were written before storage files had kinds


@contextmanager
def locked_run(out: Path) -> Iterator[None]:
    """The folder for this process alone, created if need be; removes leftovers of killed ones."""
    with storage.locked_folder(out, "lock"):
        for name in (CHECKPOINT, ENCODER_FILE, LOG_FILE, CONFIG_FILE):
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


@dataclass
class TrainingState:
    """Where a run stands.

    step : steps done; epoch_loss, epoch_correct, epoch_images : sums of the epoch under way
    best, best_epoch : highest validation accuracy and its epoch, for `selection="validation"`
    seconds, cpu_seconds : spent training, over all parts of an interrupted run
    """

    step: int = 0
    epoch_loss: float = 0.0
    epoch_correct: int = 0
    epoch_images: int = 0
    epoch_seconds: float = 0.0
    best: float = -1.0
    best_epoch: int = -1
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    log: list[dict[str, Any]] = field(default_factory=list)


class Checkpoint(NamedTuple):
    """A run that was interrupted; `config` must be the same for it to be continued."""

    tensors: dict[str, Tensor]
    config: dict[str, Any]
    progress: TrainingState


def save_checkpoint(
    path: Path, tensors: dict[str, Tensor], config: dict[str, Any], progress: TrainingState
) -> None:
    """Write a checkpoint; if that fails, the one before stays."""
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    storage.write(path, "checkpoint", {"config": config, "progress": asdict(progress)}, arrays)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read what `save_checkpoint` wrote."""
    import torch

    meta, arrays = storage.read(path, "checkpoint", old=_old_meta)
    try:
        config, progress = dict(meta["config"]), TrainingState(**meta["progress"])
    except (KeyError, TypeError, ValueError) as error:
        fix = storage.FILE_KINDS["checkpoint"].fix
        raise DamagedFile(shown(path), reason(error), fix) from error
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return Checkpoint(tensors, config, progress)


def _old_meta(header: dict[str, str]) -> dict[str, Any]:
    meta: dict[str, Any] = json.loads(header["cala"])
    if meta["version"] != _BEFORE_KINDS:
        raise ValueError(f"it has version {meta['version']}: finish it with the cala that began it")
    return meta


def epoch_events(folder: Path) -> Callable[[dict[str, Any]], None]:
    """A function that writes a line of the log as TensorBoard events."""
    with needs("train", "tensorboard", "--tensorboard"):
        from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard"))

    def write(line: dict[str, Any]) -> None:
        for name, value in line.items():
            if name not in ("epoch", "step"):
                writer.add_scalar(name, value, line["epoch"])
        writer.flush()

    return write
