"""The registry of architectures: untrained modules that `cala train` can train."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from cala.registry import Registry

ARCHITECTURES: Registry[Callable[[], nn.Module]] = Registry("architecture")
