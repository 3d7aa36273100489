"""What the package brings along, so that it works without a download."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from cala.errors import InputError


def shipped(name: str) -> Path:
    """A file of this folder by its path below it, such as `cifar100/embeddings.npz`."""
    path = Path(str(resources.files("cala.shipped"))) / name
    if not path.is_file():
        raise InputError(f"{name} is not in this installation of cala: install it again")
    return path
