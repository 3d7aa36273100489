"""A training run on disk: one safetensors file, replaced in one step."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cala import storage
from cala.errors import DamagedFile
from cala.files import reason, shown

BEFORE_KINDS = 2  # the version of checkpoints that were written before storage files had kinds


@dataclass
class Progress:
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
    progress: Progress


def save_checkpoint(
    path: Path, tensors: dict[str, Tensor], config: dict[str, Any], progress: Progress
) -> None:
    """Write a checkpoint; if that fails, the one before stays."""
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    storage.write(path, "checkpoint", {"config": config, "progress": asdict(progress)}, arrays)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read what `save_checkpoint` wrote."""
    meta, arrays = storage.read(path, "checkpoint", old=_old_meta)
    try:
        config, progress = dict(meta["config"]), Progress(**meta["progress"])
    except (KeyError, TypeError, ValueError) as error:
        fix = storage.KINDS["checkpoint"].fix
        raise DamagedFile(shown(path), reason(error), fix) from error
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return Checkpoint(tensors, config, progress)


def _old_meta(header: dict[str, str]) -> dict[str, Any]:
    meta: dict[str, Any] = json.loads(header["cala"])
    if meta["version"] != BEFORE_KINDS:
        raise ValueError(f"it has version {meta['version']}: finish it with the cala that began it")
    return meta
