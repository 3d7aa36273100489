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
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from cala.core.prototypes import normalise
from cala.encoders.transform import Transform
from cala.heads.nearest_mean import NearestMean
from cala.training.augment import Augmentation
from cala.training.loop import centre, seeded

BATCH = 250  # images that are encoded at once


@dataclass(frozen=True)
class Start:
    """The base session as a learner finds it.

    encoder : a module with `lower` and `upper`, on the device that trains; never changed
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
    head: NearestMean
    seed: int = 0
    full: bool = False


class Learner(ABC):
    """One course through the sessions. `add` replaces what it changes and writes to nothing, so
    `fork` is a shallow copy. Between sessions all but the encoder lies on the processor.

    encoder : as the last session left it
    head : the base branch, which learns the same shots from cached embeddings
    rows : (C, d) of the classifier that training works with; the first are base prototypes
    """

    #: Whether a session changes the encoder's upper half alone.
    upper_only: ClassVar[bool] = False
    #: Steps or epochs of a session: published, and for a short one.
    published: ClassVar[int]
    short: ClassVar[int]

    def __init__(self, start: Start) -> None:
        self.start = start
        self.encoder = copy.deepcopy(start.encoder).requires_grad_(False).eval()
        self.device = next(start.encoder.parameters()).device
        self.head = start.head.fork()
        self.scale = start.head.scale
        self.rows = normalise(self.head.prototypes)
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

        pictures : (n, s, s, 3) uint8; features : (n, d) their cached embeddings
        columns : (n,) the next ones in order
        """
        self.session += 1
        self.head.add(features, columns)
        with torch.enable_grad():
            self._learn(pictures, columns)

    @abstractmethod
    def _learn(self, pictures: Tensor, columns: Tensor) -> None:
        """Train for a session; the base branch knows its classes already."""

    @abstractmethod
    def logits(self, unit: Tensor, base: Tensor) -> Tensor:
        """(n, C) for images by their unit embeddings (n, d), now and in the base branch."""

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """What it keeps for the next session beside encoder, rows and base branch: memory."""

    @property
    def bytes(self) -> int:
        """Size of all that a session needs from the one before it."""
        held = [*self.encoder.state_dict().values(), self.rows, *self.tensors()]
        held += self.head.state()["tensors"].values()
        return sum(t.numel() * t.element_size() for t in held)

    # What sessions share.

    def generator(self) -> torch.Generator:
        """Random numbers of this session."""
        return seeded(self.start.seed, type(self).__name__, self.session)

    def inputs(self, pictures: Tensor) -> Tensor:
        """Images as the encoder sees them at test time: (n, s, s, 3) -> (n, 3, size, size)"""
        return self._input(centre(pictures.to(self.device), self.start.transform))

    def augmented(self, pictures: Tensor, generator: torch.Generator) -> Tensor:
        """Images as the encoder sees them in training."""
        u = self.start.augmentation.draw(len(pictures), generator).to(self.device)
        return self._input(self.start.augmentation(pictures.to(self.device), u))

    def _input(self, images: Tensor) -> Tensor:
        inputs, size = self.start.transform.normalise(images), self.start.transform.size
        if inputs.shape[-1] == size:
            return inputs
        return F.interpolate(inputs, size=(size, size), mode="bilinear", antialias=True)

    def encode(self, pictures: Tensor, encoder: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Unit embeddings (n, d) of images (n, s, s, 3), some at a time, by the encoder as it is
        now or by another."""
        coder = self.encoder if encoder is None else encoder
        with torch.no_grad():
            parts = [coder(self.inputs(some)).float().cpu() for some in pictures.split(BATCH)]
        return normalise(torch.cat(parts))

    def scores(self, features: Tensor, rows: Tensor) -> Tensor:
        """s·cos of embeddings (n, d) to rows (C, d), both of any length."""
        return self.scale * F.normalize(features.float(), dim=1) @ F.normalize(rows, dim=1).T

    def imprinted(self, unit: Tensor, columns: Tensor) -> Tensor:
        """Rows of known classes, and behind them the means of new classes' shots: (C, d)."""
        return torch.cat([self.rows, normalise(class_means(unit, columns, len(self.rows)))])


def class_means(unit: Tensor, columns: Tensor, first: int) -> Tensor:
    """Means of rows (n, d) by column (n,), from the column `first` on."""
    own = columns - first
    counts = torch.bincount(own).to(unit)
    return unit.new_zeros(len(counts), unit.shape[1]).index_add_(0, own, unit) / counts[:, None]


def best_of_each(closeness: Tensor, columns: Tensor, first: int, end: int) -> Tensor:
    """For every column from `first` to before `end`, the row with the largest closeness (n,)."""
    alone = closeness.new_full((len(closeness), end - first), -torch.inf)
    mine = (columns >= first).nonzero()[:, 0]
    alone[mine, columns[mine] - first] = closeness[mine]
    return alone.argmax(0)


def lower(encoder: nn.Module, inputs: Tensor) -> Tensor:
    """The encoder's lower half: (n, 3, h, w) -> (n, c, h', w')"""
    return encoder.lower(inputs)  # type: ignore[operator]


def upper(encoder: nn.Module, hidden: Tensor) -> Tensor:
    """The encoder's upper half: what `lower` gave -> (n, d)"""
    return encoder.upper(hidden)  # type: ignore[operator]


def nesterov(groups: list[dict[str, object]], lr: float, decay: float) -> torch.optim.SGD:
    return torch.optim.SGD(groups, lr=lr, momentum=0.9, nesterov=True, weight_decay=decay)
