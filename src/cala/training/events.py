"""TensorBoard as an optional sink of the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cala.errors import InputError, install


def epoch_events(folder: Path) -> Callable[[dict[str, Any]], None]:
    """A function that writes a line of the log as TensorBoard events."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError(f"--tensorboard needs tensorboard: {install('train')}") from error
    writer = SummaryWriter(str(folder / "tensorboard"))

    def write(line: dict[str, Any]) -> None:
        for name, value in line.items():
            if name not in ("epoch", "step"):
                writer.add_scalar(name, value, line["epoch"])
        writer.flush()

    return write
