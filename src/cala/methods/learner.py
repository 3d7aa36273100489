"""Systems whose sessions train the encoder: they learn from images, not from embeddings.

The base session is theirs as well (`cala train --method NAME`), and the head of the same name is
their base branch: frozen, on cached embeddings. That is also what an adapter is trained on.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import Self

from cala.encoders.transform import Transform
from cala.heads.base import Head
from cala.training.augment import Augmentation
from cala.training.loop import centre, seeded

BATCH = 250  # images that are encoded at once


@dataclass(frozen=True)
class Start:
    """The base session as a learner finds it.

    encoder : a module with `lower` and `upper`; never changed
    features, columns : (n, d), (n,) of the base rows
    pictures : gives base rows, by their places (m,), as images (m, s, s, 3) uint8
    head : the base branch, fitted
    full : the published number of steps in a session, instead of a few
    """

    encoder: nn.Module
    transform: Transform
    augmentation: Augmentation
    features: Tensor
    columns: Tensor
    pictures: Callable[[Tensor], Tensor]
    head: Head
    seed: int = 0
    full: bool = False


class Learner(ABC):
    """One course through the sessions. `add` replaces what it changes and writes to nothing, so
    `fork` is a shallow copy.

    encoder : as the last session left it
    head : the base branch, which learns the same shots from cached embeddings
    """

    #: Whether a session changes the encoder's upper half alone.
    upper_only: ClassVar[bool] = False
    #: Steps or epochs of a session: published, and for a short one.
    published: ClassVar[int]
    short: ClassVar[int]

    def __init__(self, start: Start) -> None:
        self.start = start
        self.encoder = copy.deepcopy(start.encoder).requires_grad_(False).eval()
        self.head = start.head.fork()
        self.session = 0

    @property
    def length(self) -> int:
        """Steps or epochs of a session here."""
        return self.published if self.start.full else self.short

    def fork(self) -> Self:
        other = copy.copy(self)
        other.head = self.head.fork()
        return other

    def add(self, pictures: Tensor, features: Tensor, columns: Tensor) -> None:
        """Learn a session's shots.

        pictures : (n, s, s, 3) uint8; features : (n, d) their cached embeddings; columns : (n,)
        """
        self.session += 1
        self.head.add(features, columns)
        with torch.enable_grad():
            self._learn(pictures, features, columns)

    @abstractmethod
    def _learn(self, pictures: Tensor, features: Tensor, columns: Tensor) -> None:
        """Train for a session; the base branch knows its classes already."""

    @abstractmethod
    def logits(self, unit: Tensor, base: Tensor) -> Tensor:
        """(n, C) for images by their unit embeddings (n, d), now and in the base branch."""

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """What it keeps for the next session beside encoder and base branch: memory, rows."""

    @property
    def bytes(self) -> int:
        """Size of all that a session needs from the one before it."""
        held = [*self.encoder.state_dict().values(), *self.tensors()]
        held += self.head.state()["tensors"].values()
        return sum(t.numel() * t.element_size() for t in held)

    # What sessions share.

    def generator(self) -> torch.Generator:
        """Random numbers of this session."""
        return seeded(self.start.seed, type(self).__name__, self.session)

    def inputs(self, pictures: Tensor) -> Tensor:
        """Images as the encoder sees them at test time: (n, s, s, 3) -> (n, 3, size, size)"""
        return self.start.transform.normalise(centre(pictures, self.start.transform))

    def augmented(self, pictures: Tensor, generator: torch.Generator) -> Tensor:
        """Images as the encoder sees them in training."""
        u = self.start.augmentation.draw(len(pictures), generator)
        return self.start.transform.normalise(self.start.augmentation(pictures, u))


def lower(encoder: nn.Module, inputs: Tensor) -> Tensor:
    """The encoder's lower half: (n, 3, h, w) -> (n, c, h', w')"""
    return encoder.lower(inputs)  # type: ignore[operator]


def upper(encoder: nn.Module, hidden: Tensor) -> Tensor:
    """The encoder's upper half: what `lower` gave -> (n, d)"""
    return encoder.upper(hidden)  # type: ignore[operator]


def encode(encoder: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """Unit embeddings (n, d) of inputs (n, …), without gradients, some at a time."""
    with torch.inference_mode():
        parts = [encoder(some) for some in inputs.split(BATCH)]
    return nn.functional.normalize(torch.cat(parts).float(), dim=1).clone()


def nesterov(groups: list[dict[str, object]], lr: float, decay: float) -> torch.optim.SGD:
    return torch.optim.SGD(groups, lr=lr, momentum=0.9, nesterov=True, weight_decay=decay)
