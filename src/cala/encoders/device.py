"""`--device`: a device that can be used here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cala.errors import InputError

if TYPE_CHECKING:
    import torch


def choose_device(name: torch.device | str) -> str:
    """A device by name; `auto` is the fastest there is."""
    import torch

    if name == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        detail = f"device {str(name)!r} cannot be used here ({first})"
        raise InputError(detail, "try cpu", field="device") from error
    if device.type == "meta":
        raise InputError("device 'meta' holds no numbers", "try cpu", field="device")
    return str(name)
