"""One process, or several through lightning-fabric."""

from __future__ import annotations

from typing import Any
from typing import Protocol as Interface

import torch
from torch import Tensor, nn

from cala.errors import InputError


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

    def wait(self) -> None:
        """Until all processes are here."""
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

    def wait(self) -> None:
        return


class FabricRanks:
    """Processes started by lightning-fabric; the command is started again for each of them."""

    def __init__(self, devices: int, strategy: str, device: str) -> None:
        try:
            from lightning_fabric import Fabric
        except ImportError as error:
            raise InputError(
                "training on several devices needs lightning-fabric: pip install 'cala[train]'"
            ) from error
        kind = torch.device(device).type
        try:
            self.fabric: Any = Fabric(accelerator=kind, devices=devices, strategy=strategy)
            self.fabric.launch()
        except (ValueError, RuntimeError, KeyError) as error:
            first = str(error).splitlines()[0]
            raise InputError(
                f"{devices} devices of kind {kind} with strategy {strategy!r} cannot be used "
                f"here ({first})"
            ) from error
        self.rank = int(self.fabric.global_rank)
        self.world = int(self.fabric.world_size)

    @property
    def device(self) -> torch.device:
        return torch.device(self.fabric.device)

    def wrap(self, model: nn.Module) -> Any:
        return self.fabric.setup_module(model)

    def backward(self, loss: Tensor) -> None:
        self.fabric.backward(loss)

    def total(self, sums: Tensor) -> Tensor:
        found: Tensor = self.fabric.all_reduce(sums, reduce_op="sum")
        return found

    def wait(self) -> None:
        self.fabric.barrier()
