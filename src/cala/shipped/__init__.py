"""What the package brings along, so that it works without a download."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from cala.errors import InputError


def shipped(name: str) -> Path:
    """A file of this folder by its path below it, such as `cifar100/embeddings.npz`."""
    path = Path(str(resources.files("cala.shipped"))) / name
    if not path.is_file():
        detail = f"{name} is missing from this installation of cala"
        raise InputError(detail, "reinstall cala", code="missing_file")
    return path
