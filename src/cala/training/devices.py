"""One device, or several through lightning-fabric."""

from __future__ import annotations

from typing import Any
from typing import Protocol as Interface

from torch import Tensor, nn


class Ranks(Interface):
    """The processes that train together.

    rank, world : this process's number and how many there are
    """

    rank: int
    world: int

    def wrap(self, model: nn.Module) -> Any:
        """The model whose gradients are averaged over all processes."""
        ...

    def backward(self, loss: Tensor) -> None: ...

    def total(self, sums: Tensor) -> Tensor:
        """Sums over all processes."""
        ...


class Single:
    """One process."""

    rank = 0
    world = 1

    def wrap(self, model: nn.Module) -> Any:
        return model

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def total(self, sums: Tensor) -> Tensor:
        return sums
