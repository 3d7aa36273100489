"""A training run on disk: one safetensors file, replaced in one step."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from cala.errors import InputError
from cala.files import atomic, reason, shown

VERSION = 2


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


def save_checkpoint(
    path: Path, tensors: dict[str, Tensor], config: dict[str, Any], progress: Progress
) -> None:
    """Write a checkpoint; if that fails, the one before stays."""
    content = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    meta = {"version": VERSION, "config": config, "progress": asdict(progress)}
    text = json.dumps(meta, allow_nan=False)
    header = {"cala": text, "sha256": checksum(content, text)}
    try:
        with atomic(path) as temporary:
            save_file(content, temporary, metadata=header)
    except (OSError, SafetensorError) as error:
        before = "; the checkpoint before it is still there" if path.exists() else ""
        raise InputError(
            f"the checkpoint {shown(path)} cannot be written ({reason(error)}): free some "
            f"space{before}"
        ) from error


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any], Progress]:
    """Tensors, configuration and progress of a checkpoint."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            meta = json.loads(header["cala"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if meta["version"] != VERSION:
            raise InputError(
                f"{shown(path)} has version {meta['version']}, this is {VERSION}: finish it with "
                "the cala that began it, or start again in another folder"
            )
        if header["sha256"] != checksum(tensors, header["cala"]):
            raise ValueError("its checksum is another")
        return tensors, meta["config"], Progress(**meta["progress"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{shown(path)} is not a whole checkpoint of cala train ({reason(error)}): delete it "
            "and start again"
        ) from error


def checksum(tensors: dict[str, Tensor], text: str) -> str:
    """SHA-256 of all that a checkpoint holds: safetensors itself notices only a wrong length."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
