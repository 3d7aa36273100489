"""`--device`: what can be used here."""

from __future__ import annotations

from cala.errors import InputError


def choose_device(name: str) -> str:
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
        raise InputError(f"device {name!r} cannot be used here ({first}): try cpu") from error
    if device.type == "meta":
        raise InputError("device 'meta' holds no numbers: try cpu")
    return name
