"""iCaRL (Rebuffi et al., CVPR 2017): exemplars, distillation, nearest mean of exemplars.

Base session: an ordinary softmax classifier. Sessions: train on shots and exemplars, keep old
answers, herd again.
"""

from __future__ import annotations

import copy
import math
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cala.core.rows import Array
from cala.heads.base import Traits
from cala.systems.common.exemplar_mean import ExemplarMean
from cala.systems.common.learner import (
    Learner,
    SessionStart,
    class_means,
    descend,
    distillation,
    nesterov,
)
from cala.systems.published import Published, base_session
from cala.systems.registry import System
from cala.training.objective import Objective

EXEMPLARS = 20  # per base class
_BATCH = 128
LR, LR_SHORT, DECAY = 0.1, 0.01, 2e-4
MILESTONES = (80 / 170, 120 / 170)
_TEMPERATURE = 2.0
_START = 16.0  # scale of the cosines that rows start with where class means are known


def herd(unit: Array, count: int) -> Array:
    """Herding (Welling, 2009): the images whose mean stays closest to the class mean.

    Rows of unit vectors (n, d) in the order in which they are chosen: (min(count, n),). Each is
    the one that brings the mean of those chosen closest to the mean of all:
    argmin ‖μ − (S + f) / k‖, no row twice.
    """
    mean = unit.mean(0)
    total = np.zeros_like(mean)
    free = np.ones(len(unit), dtype=bool)
    chosen = np.empty(min(count, len(unit)), dtype=np.int64)
    for k in range(len(chosen)):
        apart = np.linalg.norm(mean - (total + unit) / (k + 1), axis=1)
        best = chosen[k] = np.where(free, apart, np.inf).argmin()
        free[best] = False
        total = total + unit[best]
    return chosen


def herded(unit: Array, columns: Array, first: int, end: int) -> Array:
    """Rows of the exemplars of every column from `first` to before `end`: (m,)."""
    kept = []
    for column in range(first, end):
        mine = np.flatnonzero(columns == column)
        kept.append(mine[herd(unit[mine], EXEMPLARS)])
    return np.concatenate(kept)


class Icarl(ExemplarMean):
    """iCaRL before its first session: base prototypes are means of herded exemplars.

    `IcarlLearner` trains the encoder in sessions.
    """

    name = "icarl"
    traits: ClassVar[Traits] = ExemplarMean.traits._replace(
        metrics=("cosine",), changes_encoder=True
    )

    def _pick(self, unit: Array) -> Array:
        return herd(unit, EXEMPLARS)


class SoftmaxClassifier(Objective):
    """Cross-entropy over W f + b; f are unit embeddings times √d, as heads know them."""

    wants_means: ClassVar[bool] = True

    def build(self) -> None:
        self.classifier = nn.Linear(self.dim, self.n_base)

    def begin(self, means: Tensor) -> None:
        with torch.no_grad():
            self.classifier.weight.copy_(_START / math.sqrt(self.dim) * means)
            self.classifier.bias.zero_()

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.logits(images)
        return F.cross_entropy(logits, labels), logits.detach()

    def logits(self, images: Tensor) -> Tensor:
        unit = F.normalize(self.encoder(images).float(), dim=1)
        return self.classifier(math.sqrt(self.dim) * unit).float()


class IcarlLearner(Learner):
    """The whole encoder moves; classes are told apart by the means of their exemplars.

    A short session also has a tenth of the rate: a few epochs cannot repair what 0.1 undoes.
    """

    short: ClassVar[int] = 3

    def __init__(self, start: SessionStart) -> None:
        super().__init__(start)
        unit = self.head.embed(start.features)
        chosen = herded(unit, start.columns, 0, start.head.n_base)
        self.memory = start.pictures(chosen)
        self.owners = torch.from_numpy(start.columns[chosen])
        self.means = self.rows

    def _learn(self, pictures: Tensor, columns: Tensor) -> None:
        before, now = self.encoder, copy.deepcopy(self.encoder).requires_grad_(True)
        old = len(self.rows)
        rows = nn.Parameter(self.imprinted(self.encode(pictures), columns).to(self.device))
        old_rows = rows.detach()[:old].clone()
        images, owners = torch.cat([pictures, self.memory]), torch.cat([columns, self.owners])
        optimiser = nesterov([*now.parameters(), rows], LR, DECAY)
        generator = self.generator()
        now.train()
        for epoch in range(self.length):
            for group in optimiser.param_groups:
                group["lr"] = self.rate(epoch)
            for batch in torch.randperm(len(images), generator=generator).split(_BATCH):
                if len(batch) < 2:  # no batch statistics of one image
                    continue
                inputs = self.augmented(images[batch], generator)
                with torch.no_grad():
                    teacher = self.scores(before(inputs), old_rows)
                scores = self.scores(now(inputs), rows)
                loss = F.cross_entropy(scores, owners[batch].to(self.device))
                loss = loss + distillation(scores[:, :old], teacher, _TEMPERATURE)
                descend(optimiser, loss)
        self.encoder = now.eval().requires_grad_(False)
        self.rows = rows.detach().cpu()
        # Of a new class at most as many shots are kept as of a base class; all means are new.
        unit = self.encode(images)
        new = torch.from_numpy(herded(unit.numpy(), owners.numpy(), old, len(rows)))
        kept = torch.cat([(owners < old).nonzero()[:, 0], new])
        self.memory, self.owners = images[kept], owners[kept]
        self.means = F.normalize(class_means(unit[kept], self.owners, 0), dim=1)

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch."""
        passed = sum(epoch + 1e-9 >= m * self.length for m in MILESTONES)
        return (LR_SHORT if self.start.steps is None else LR) * 0.1**passed

    def _logits(self, unit: Tensor, base: Array) -> Tensor:
        """s·cos to the means of exemplars: the same order as by distance of unit vectors."""
        return self.scale * unit @ self.means.T


#: The published schedule, 200 epochs.
BASE_CHANGES = base_session(128, 0.1, 200, (60, 120, 170))
_MISSING = "all but class-incremental CIFAR-100, whose numbers these are"
PUBLISHED = {
    "cifar100": Published("resnet18-small", BASE_CHANGES, session={"steps": 170}),
    "mini_imagenet": Published(
        "resnet18-small", BASE_CHANGES, session={"steps": 170}, missing=_MISSING
    ),
    "cub200": Published(
        "resnet18",
        {**BASE_CHANGES, "lr": 0.01},
        session={"steps": 170},
        missing=f"{_MISSING}, at the rate of the other systems that start from weights",
    ),
}
SYSTEM = System(SoftmaxClassifier, BASE_CHANGES, learner=IcarlLearner)
