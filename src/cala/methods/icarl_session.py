"""iCaRL's sessions: train on shots and exemplars, keep old answers, herd again."""

from __future__ import annotations

import copy
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cala.core.distillation import distillation
from cala.core.herding import herd
from cala.core.prototypes import normalise
from cala.heads.icarl import EXEMPLARS
from cala.methods.learner import Learner, Start, class_means, nesterov

BATCH = 128
LR, LR_SHORT, DECAY = 0.1, 0.01, 2e-4
MILESTONES = (80 / 170, 120 / 170)
TEMPERATURE = 2.0


class IcarlLearner(Learner):
    """The whole encoder moves; classes are told apart by the means of their exemplars.

    A short session also has a tenth of the rate: a few epochs cannot repair what 0.1 undoes.
    """

    published: ClassVar[int] = 170  # epochs
    short: ClassVar[int] = 3

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        unit = self.head.embed(start.features)
        chosen = herded(unit, start.columns, 0, start.head.n_base)
        self.memory = start.pictures(chosen)
        self.owners = start.columns[chosen]
        self.means = self.rows

    def _learn(self, pictures: Tensor, columns: Tensor) -> None:
        before, now = self.encoder, copy.deepcopy(self.encoder).requires_grad_(True)
        old = len(self.rows)
        rows = nn.Parameter(self.imprinted(self.encode(pictures), columns).to(self.device))
        old_rows = rows.detach()[:old].clone()
        images, owners = torch.cat([pictures, self.memory]), torch.cat([columns, self.owners])
        optimiser = nesterov([{"params": [*now.parameters(), rows]}], LR, DECAY)
        generator = self.generator()
        now.train()
        for epoch in range(self.length):
            for group in optimiser.param_groups:
                group["lr"] = self.rate(epoch)
            for batch in torch.randperm(len(images), generator=generator).split(BATCH):
                if len(batch) < 2:  # no batch statistics of one image
                    continue
                inputs = self.augmented(images[batch], generator)
                with torch.no_grad():
                    teacher = self.scores(before(inputs), old_rows)
                scores = self.scores(now(inputs), rows)
                loss = F.cross_entropy(scores, owners[batch].to(self.device))
                loss = loss + distillation(scores[:, :old], teacher, TEMPERATURE)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
        self.encoder = now.eval().requires_grad_(False)
        self.rows = rows.detach().cpu()
        # Of a new class at most as many shots are kept as of a base class; all means are new.
        unit = self.encode(images)
        kept = torch.cat([(owners < old).nonzero()[:, 0], herded(unit, owners, old, len(rows))])
        self.memory, self.owners = images[kept], owners[kept]
        self.means = normalise(class_means(unit[kept], self.owners, 0))

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch."""
        passed = sum(epoch + 1e-9 >= m * self.length for m in MILESTONES)
        return (LR if self.start.full else LR_SHORT) * 0.1**passed

    def logits(self, unit: Tensor, base: Tensor) -> Tensor:
        """s·cos to the means of exemplars: the same order as by distance of unit vectors."""
        return self.scale * unit @ self.means.T

    def tensors(self) -> list[Tensor]:
        return [self.memory, self.owners, self.means]


def herded(unit: Tensor, columns: Tensor, first: int, end: int) -> Tensor:
    """Rows of the exemplars of every column from `first` to before `end`."""
    kept = []
    for column in range(first, end):
        mine = (columns == column).nonzero()[:, 0]
        kept.append(mine[herd(unit[mine], EXEMPLARS)])
    return torch.cat(kept)
