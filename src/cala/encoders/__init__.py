"""Image -> embedding: architectures, pretrained encoders, loaders of other libraries, the cache.

Nothing here is imported before it is used: torch takes seconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cala.encoders.registry import ARCHITECTURES, ENCODERS, LOADERS, load_encoder

if TYPE_CHECKING:
    from cala.encoders.base import Encoder
    from cala.encoders.transform import Transform

__all__ = ["ARCHITECTURES", "ENCODERS", "LOADERS", "Encoder", "Transform", "load_encoder"]

_LAZY = {"Encoder": "base", "Transform": "transform"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
