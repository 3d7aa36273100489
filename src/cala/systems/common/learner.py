"""Systems whose sessions train the encoder: they learn from images, not from embeddings.

The base session is theirs as well (`cala train --method NAME`), and the head of the same name is
their base branch: frozen, on cached embeddings. That is also what an adapter is trained on.

What comes in and goes out (embeddings, labels, logits) are arrays; pictures and what networks are
trained with are tensors.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from cala.core.cala import normalise
from cala.core.rows import Array
from cala.encoders.transform import Transform
from cala.heads.nearest_mean import NearestMean
from cala.training.augment import Augmentation
from cala.training.loop import centre, resized, seeded

_BATCH = 250  # images that are encoded at once
HIDDEN_MOST = 2**28  # numbers: 1 GB of half-way embeddings are kept


@dataclass(frozen=True)
class SessionStart:
    """The base session as a learner finds it.

    encoder : a module with `lower` and `upper`, on the device that trains; never changed
    features, columns : arrays (n, d), (n,) of the base rows
    pictures : gives base rows, by their places (m,), as images (m, s, s, 3) uint8
    head : the base branch, fitted
    steps : of a session, or epochs; None for a few
    """

    encoder: nn.Module
    transform: Transform
    augmentation: Augmentation
    features: Array
    columns: Array
    pictures: Callable[[Array], Tensor]
    head: NearestMean
    seed: int = 0
    steps: int | None = None


class Learner(ABC):
    """One course through the sessions. `add` replaces what it changes and writes to nothing, so
    `fork` is a shallow copy. Between sessions everything but the encoder is on the CPU.

    encoder : as the last session left it
    head : the base branch, which learns the same shots from cached embeddings
    rows : (C, d) of the classifier that training works with; the first are base prototypes
    """

    #: Whether a session changes the encoder's upper half alone.
    upper_only: ClassVar[bool] = False
    #: Steps or epochs of a short session.
    short: ClassVar[int]

    def __init__(self, start: SessionStart) -> None:
        self.start = start
        self.encoder = copy.deepcopy(start.encoder).requires_grad_(False).eval()
        self.device = next(start.encoder.parameters()).device
        self.head = start.head.fork()
        self.scale = start.head.scale
        self.rows = self.base_rows
        self.session = 0

    @property
    def base_rows(self) -> Tensor:
        """Unit prototypes (C, d) of the base branch."""
        return as_tensor(normalise(self.head.prototypes))

    @property
    def length(self) -> int:
        """Steps or epochs of a session here."""
        return self.short if self.start.steps is None else self.start.steps

    def fork(self) -> Self:
        other = copy.copy(self)
        other.head = self.head.fork()
        return other

    def add(self, pictures: Tensor, features: Array, columns: Array) -> None:
        """Learn a session's shots.

        pictures : (n, s, s, 3) uint8; features : (n, d) their cached embeddings
        columns : (n,) the next ones in order
        """
        self.session += 1
        self.head.add(features, columns)
        with torch.enable_grad():
            self._learn(pictures, torch.from_numpy(columns))

    def logits(self, unit: Array, base: Array) -> Array:
        """(n, C) for images by their unit embeddings (n, d), now and in the base branch."""
        with torch.no_grad():
            return self._logits(as_tensor(unit), base).numpy()

    @abstractmethod
    def _learn(self, pictures: Tensor, columns: Tensor) -> None:
        """Train for a session; the base branch knows its classes already."""

    @abstractmethod
    def _logits(self, unit: Tensor, base: Array) -> Tensor:
        """`logits`, as a tensor."""

    @property
    def bytes(self) -> int:
        """Size of all that a session needs from the one before it: networks, tensors, head."""
        held: list[Any] = [*self.head.state()["tensors"].values()]
        for own in vars(self).values():
            if isinstance(own, nn.Module):
                held += own.state_dict().values()
            elif isinstance(own, Tensor):
                held.append(own)
        return sum(each.nbytes for each in held)

    # Images that are encoded again after every session.

    def views(self, pictures: Tensor) -> Tensor:
        """Images (n, s, s, 3), or what the half of the encoder that never changes makes of them
        where that fits into memory; `encode` takes either."""
        if not self.upper_only:
            return pictures
        with torch.no_grad():
            encoder = self.start.encoder
            shape = lower(encoder, self.inputs(pictures[:1])).shape[1:]
            if shape.numel() * len(pictures) > HIDDEN_MOST:
                return pictures
            views = torch.empty(len(pictures), *shape)
            for rows in torch.arange(len(pictures)).split(_BATCH):
                views[rows] = lower(encoder, self.inputs(pictures[rows])).float().cpu()
        return views

    def encode(self, views: Tensor) -> Tensor:
        """Unit embeddings (n, d) by the encoder as it is now, some at a time.

        views : images (n, s, s, 3) uint8, or what `views` made of them
        """
        with torch.no_grad():
            parts = [self._embedding(some).float().cpu() for some in views.split(_BATCH)]
        return F.normalize(torch.cat(parts), dim=1)

    def _embedding(self, views: Tensor) -> Tensor:
        if views.dtype == torch.uint8:
            return self.encoder(self.inputs(views))
        return upper(self.encoder, views.to(self.device))

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
        return resized(self.start.transform.normalise(images), self.start.transform.size)

    def scores(self, features: Tensor, rows: Tensor) -> Tensor:
        """s·cos of embeddings (n, d) to rows (C, d), both of any length."""
        return self.scale * F.normalize(features.float(), dim=1) @ F.normalize(rows, dim=1).T

    def imprinted(self, unit: Tensor, columns: Tensor) -> Tensor:
        """Rows of known classes, and behind them the means of new classes' shots: (C, d)."""
        new = F.normalize(class_means(unit, columns, len(self.rows)), dim=1)
        return torch.cat([self.rows, new])


def as_tensor(array: Array) -> Tensor:
    """Numbers as networks compute with them: float32."""
    return torch.from_numpy(array).float()


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


def nesterov(parameters: list[nn.Parameter], lr: float, decay: float) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9, nesterov=True, weight_decay=decay)


def descend(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step down the gradient of a loss."""
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()


def distillation(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """KL(softmax(teacher / T) ‖ softmax(student / T)), mean over rows (n, C) (Hinton et al., 2015).

    Systems that multiply it by T² do so themselves.
    """
    log_student = F.log_softmax(student / temperature, dim=1)
    log_teacher = F.log_softmax(teacher / temperature, dim=1)
    return F.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True)
