"""`--device`: a device that can be used here."""

from __future__ import annotations

import os
import platform
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cala.errors import InputError
from cala.extras import needs
from cala.files import first_line

if TYPE_CHECKING:
    import torch

# What graphics drivers leave behind: NVIDIA's, AMD's, and either under Windows.
DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", r"C:\Windows\System32\nvcuda.dll")


def choose_device(name: torch.device | str) -> str:
    """A device by name; `auto` is the fastest there is."""
    name = str(name)
    if name == "cpu" or (name == "auto" and not _may_have_gpu()):
        return "cpu"
    with needs("train", "device"):
        import torch

    if name == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        detail = f"device {name!r} cannot be used here ({first_line(error)})"
        raise InputError(detail, "try cpu", field="device") from error
    if device.type == "meta":
        raise InputError("device 'meta' holds no numbers", "try cpu", field="device")
    return name


def _may_have_gpu() -> bool:
    """Whether it is worth asking torch, which takes seconds to import."""
    if find_spec("torch") is None:
        return False
    mac = sys.platform == "darwin" and platform.machine() == "arm64"
    return mac or "torch" in sys.modules or any(map(os.path.exists, DRIVERS))
