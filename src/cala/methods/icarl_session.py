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
from cala.heads.nearest_mean import NearestMean
from cala.methods.learner import Learner, Start, encode, nesterov

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
        assert isinstance(self.head, NearestMean)
        self.scale = self.head.scale
        unit = self.head.embed(start.features)
        kept = []
        for column in range(start.head.n_base):
            mine = (start.columns == column).nonzero()[:, 0]
            kept.append(mine[herd(unit[mine], EXEMPLARS)])
        chosen = torch.cat(kept)
        self.memory = start.pictures(chosen)
        self.owners = start.columns[chosen]
        self.means = normalise(self.head.prototypes)
        self.rows = self.means.clone()  # of the softmax that training works with

    def _learn(self, pictures: Tensor, features: Tensor, columns: Tensor) -> None:
        before, now = self.encoder, copy.deepcopy(self.encoder).requires_grad_(True)
        old_rows, n_classes = self.rows, int(columns.max()) + 1
        shots = encode(before, self.inputs(pictures))
        new = [shots[columns == c].mean(0) for c in range(len(old_rows), n_classes)]
        rows = nn.Parameter(torch.cat([old_rows, normalise(torch.stack(new))]))
        images, owners = torch.cat([pictures, self.memory]), torch.cat([columns, self.owners])
        optimiser = nesterov([{"params": [*now.parameters(), rows]}], LR, DECAY)
        generator = self.generator()
        now.train()
        for epoch in range(self.length):
            passed = sum(epoch >= m * self.length for m in MILESTONES)
            for group in optimiser.param_groups:
                group["lr"] = (LR if self.start.full else LR_SHORT) * 0.1**passed
            for batch in torch.randperm(len(images), generator=generator).split(BATCH):
                if len(batch) < 2:  # no batch statistics of one image
                    continue
                inputs = self.augmented(images[batch], generator)
                with torch.no_grad():
                    teacher = self._scores(before(inputs), old_rows)
                scores = self._scores(now(inputs), rows)
                loss = F.cross_entropy(scores, owners[batch])
                loss = loss + distillation(scores[:, : len(old_rows)], teacher, TEMPERATURE)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
        self.encoder = now.eval().requires_grad_(False)
        self.rows = rows.detach()
        self.memory, self.owners = images, owners  # a novel class has fewer shots than places
        self._herd_novel(len(old_rows), n_classes)

    def _scores(self, features: Tensor, rows: Tensor) -> Tensor:
        return self.scale * F.normalize(features, dim=1) @ rows.T

    def _herd_novel(self, first: int, n_classes: int) -> None:
        """Keep at most as many shots of each new class as of a base class; take all means anew."""
        unit = encode(self.encoder, self.inputs(self.memory))
        kept = [(self.owners < first).nonzero()[:, 0]]
        for column in range(first, n_classes):
            mine = (self.owners == column).nonzero()[:, 0]
            kept.append(mine[herd(unit[mine], EXEMPLARS)])
        chosen = torch.cat(kept)
        self.memory, self.owners = self.memory[chosen], self.owners[chosen]
        sums = unit.new_zeros(n_classes, unit.shape[1]).index_add_(0, self.owners, unit[chosen])
        self.means = normalise(sums)

    def logits(self, unit: Tensor, base: Tensor) -> Tensor:
        """s·cos to the means of exemplars: the same order as by distance of unit vectors."""
        return self.scale * unit @ self.means.T

    def tensors(self) -> list[Tensor]:
        return [self.memory, self.owners, self.means, self.rows]
