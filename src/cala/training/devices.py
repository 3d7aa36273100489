"""One process, or several through lightning-fabric."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cala.errors import InputError
from cala.extras import needs
from cala.files import first_line, shown

LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


class Ranks:
    """The processes that train together; this class is for one process alone.

    rank, world : this process's number and how many there are
    """

    rank: int = 0
    world: int = 1

    def together(self) -> AbstractContextManager[None]:
        """A context for work in which a lost process shows as an error."""
        return nullcontext()

    def wrap(self, model: nn.Module) -> Any:
        """The model whose gradients are averaged over all processes."""
        return model

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def total(self, sums: Tensor) -> Tensor:
        """Sums over all processes."""
        return sums

    def wait(self) -> None:
        """Until all processes are here."""


class FabricRanks(Ranks):
    """Processes of one or several nodes, through lightning-fabric.

    Those that torchrun or a scheduler started join each other; else fabric starts the command
    again for each device of this node.
    """

    def __init__(self, devices: int, strategy: str, device: str, nodes: int = 1) -> None:
        with needs("train", "devices", "training on several devices"):
            from lightning_fabric import Fabric

        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it greets every process
        kind = torch.device(device).type
        try:
            self.fabric: Any = Fabric(
                accelerator=kind, devices=devices, strategy=strategy, num_nodes=nodes
            )
            self.fabric.launch()
        except (ValueError, RuntimeError, KeyError) as error:
            where = "" if nodes == 1 else f" on each of {nodes} nodes"
            raise InputError(
                f"{devices} devices of kind {kind}{where} with strategy {strategy!r} cannot be "
                f"used here ({first_line(error)})",
                field="devices",
            ) from error
        self.rank = int(self.fabric.global_rank)
        self.world = int(self.fabric.world_size)
        atexit.register(_leave_group)

    @property
    def device(self) -> torch.device:
        return torch.device(self.fabric.device)

    def together(self) -> AbstractContextManager[None]:
        return lost_peers()

    def wrap(self, model: nn.Module) -> Any:
        with lost_peers():
            return self.fabric.setup_module(model)

    def backward(self, loss: Tensor) -> None:
        self.fabric.backward(loss)

    def total(self, sums: Tensor) -> Tensor:
        with lost_peers():
            found: Tensor = self.fabric.all_reduce(sums, reduce_op="sum")
        return found

    def wait(self) -> None:
        with lost_peers():
            self.fabric.barrier()


def _leave_group() -> None:
    """Join gloo's threads while Python still runs: one that wants the GIL later aborts it."""
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def lost_peers() -> Iterator[None]:
    """Turn errors of talking to the other processes into one that says what to do.

    gloo raises a plain RuntimeError when a peer is gone; errors of a step itself have a class of
    their own (out of memory, not implemented, Diverged) and pass.
    """
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and type(error) is not RuntimeError:
            raise
        raise InputError(
            f"a step that this process shares with others failed, most likely because another "
            f"process of this training was lost ({first_line(error)})",
            "start all of them again with --resume",
            code="peer_lost",
        ) from error


def make_ranks(devices: int, nodes: int, strategy: str, device: str) -> Ranks:
    """The processes that train: those that were started for it, or those that are asked for."""
    joined = joining()
    if joined is None:
        if nodes > 1:
            _check_node(nodes)
        world = devices * nodes
        return FabricRanks(devices, strategy, device, nodes) if world > 1 else Ranks()
    local, world = joined
    # torchrun knows both; options that repeat them must agree.
    if devices not in (1, local) or nodes not in (1, world // local):
        raise InputError(
            f"--devices {devices} on --nodes {nodes} makes {devices * nodes} processes, and "
            f"{world} were started, {local} on each node (WORLD_SIZE, LOCAL_WORLD_SIZE)",
            "omit both options, or start as many",
            field="devices",
        )
    return FabricRanks(local, strategy, device, world // local) if world > 1 else Ranks()


def _check_node(nodes: int) -> None:
    """Raise for what would make the nodes wait for each other forever."""
    if "MASTER_ADDR" not in os.environ:
        raise InputError(
            f"--nodes {nodes} without the address of the first node",
            f"start the command with torchrun --nnodes {nodes} --rdzv-backend c10d "
            "--rdzv-endpoint HOST:PORT -m cala train …, or set MASTER_ADDR, MASTER_PORT and "
            "NODE_RANK on every node",
            field="nodes",
        )
    address = shown(os.environ["MASTER_ADDR"])
    needed = {
        "NODE_RANK": (
            range(nodes),
            f"with --nodes {nodes} set it to this node's number, from 0 to {nodes - 1}",
        ),
        "MASTER_PORT": (
            range(1, 65536),
            f"set it to a free port of the first node ({address}), the same on all nodes, such as "
            "29400",
        ),
    }
    for name, (allowed, fix) in needed.items():
        value = os.environ.get(name, "")
        if not value.isdecimal() or int(value) not in allowed:
            raise InputError(f"{name} is {shown(os.environ.get(name))}", fix, field=name)


def joining() -> tuple[int, int] | None:
    """Processes of this node and of all, where a launcher such as torchrun started them."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    try:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        if not 0 <= rank < world or local < 1 or world % local:
            raise ValueError
    except ValueError:
        given = {name: os.environ.get(name) for name in LAUNCHED if name in os.environ}
        raise InputError(
            f"the launcher's environment is inconsistent ({shown(given)})",
            "RANK must be from 0 to WORLD_SIZE - 1, with LOCAL_WORLD_SIZE processes on each node",
            field="RANK",
        ) from None
    # Launchers other than torchrun may leave these out; fabric goes by them.
    os.environ.setdefault("LOCAL_RANK", str(rank % local))
    os.environ.setdefault("NODE_RANK", os.environ.get("GROUP_RANK", str(rank // local)))
    return local, world
