"""BiDist's sessions: a branch is fine-tuned, taught by the base branch and by its own past."""

from __future__ import annotations

import copy
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cala.core.bilateral import BranchAttention, TeacherShare
from cala.core.distillation import distillation
from cala.core.prototypes import normalise
from cala.heads.nearest_mean import NearestMean
from cala.methods.learner import Learner, Start, encode, lower, nesterov, upper

LR, LR_SMALL, DECAY = 1e-3, 1e-2, 5e-4
EXEMPLARS, NEW_TAUGHT = 50, 5  # per step: of the memory, and new images that distillation sees
TEMPERATURE = 16.0
KD = 25.0  # published: 100, with which the first session diverges here
MEMORY, AGGREGATED, BINARY, SHARE = 5.0, 5.0, 50.0, 1.0


class BidistLearner(Learner):
    """Keeps one image per class; the upper half of the encoder and all rows move.

    The lower half stays, so that all three branches (base, last session's, this one's) share it.
    """

    upper_only: ClassVar[bool] = True
    published: ClassVar[int] = 100  # steps
    short: ClassVar[int] = 40

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        assert isinstance(self.head, NearestMean)
        self.scale = self.head.scale
        self.rows = normalise(self.head.prototypes)  # (C, d) of the branch that moves
        unit = self.head.embed(start.features)
        closeness = (unit * self.rows[start.columns]).sum(1)
        best = [
            mine[closeness[mine].argmax()]
            for mine in ((start.columns == c).nonzero()[:, 0] for c in range(start.head.n_base))
        ]
        self.memory = start.pictures(torch.stack(best))  # (C, s, s, 3), by column
        self.attention: BranchAttention | None = None

    def _learn(self, pictures: Tensor, features: Tensor, columns: Tensor) -> None:
        n_base, old = self.head.n_base, len(self.rows)
        before, now = self.encoder, copy.deepcopy(self.encoder)
        hidden = lower(now, self.inputs(pictures))
        old_rows = self._imprinted(before, hidden, columns)
        rows = nn.Parameter(old_rows.clone())
        base_rows = normalise(self.head.prototypes)
        generator = self.generator()
        with torch.random.fork_rng():
            torch.manual_seed(generator.initial_seed())
            share, attention = TeacherShare(n_base), BranchAttention(len(rows))
        moving = _upper_parameters(now)
        for parameter in moving:
            parameter.requires_grad_(True)
        optimiser = nesterov(
            [
                {"params": [*moving, rows]},
                {"params": [*share.parameters(), *attention.parameters()], "lr": LR_SMALL},
            ],
            LR,
            DECAY,
        )
        towards_base = base_rows @ base_rows[:n_base].T  # (C, B)
        for _ in range(self.length):
            chosen = self._exemplars(old, n_base, generator)
            images = self.augmented(torch.cat([pictures, self.memory[chosen]]), generator)
            targets = torch.cat([columns, chosen])
            with torch.no_grad():
                hidden = lower(before, images)
                from_base = self._scores(upper(self.start.encoder, hidden), base_rows)
                from_before = self._scores(upper(before, hidden), old_rows)
            scores = self._scores(upper(now, hidden), rows)
            new = len(columns)
            taught = torch.cat(
                [
                    torch.randperm(new, generator=generator)[:NEW_TAUGHT],
                    torch.arange(new, len(targets)),
                ]
            )
            novel = targets >= n_base
            c = torch.where(novel, share(towards_base[targets]), 1.0)[:, None]
            teacher = c * from_base + (1 - c) * from_before
            weights = attention(from_base, scores.detach())
            both = attention.aggregated(weights, from_base, scores)
            loss = (
                F.cross_entropy(scores[:new], columns)
                + KD * distillation(scores[taught], teacher[taught], TEMPERATURE)
                + MEMORY * F.cross_entropy(scores[new:], chosen)
                + AGGREGATED * F.cross_entropy(both, targets)
                + BINARY * F.cross_entropy(weights, novel.long())
                + SHARE * (1 - c[novel]).mean()
            )
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
        self.encoder = now.requires_grad_(False)
        self.rows, self.attention = rows.detach(), attention.requires_grad_(False)
        self.memory = torch.cat([self.memory, self._new_exemplars(pictures, columns, old)])

    def _scores(self, features: Tensor, rows: Tensor) -> Tensor:
        return self.scale * F.normalize(features, dim=1) @ F.normalize(rows, dim=1).T

    def _imprinted(self, encoder: nn.Module, hidden: Tensor, columns: Tensor) -> Tensor:
        """Rows of known classes, and class means of the shots behind them."""
        unit = encode(partial(upper, encoder), hidden)
        old = len(self.rows)
        means = [unit[columns == c].mean(0) for c in range(old, int(columns.max()) + 1)]
        return torch.cat([self.rows, normalise(torch.stack(means))])

    def _exemplars(self, old: int, n_base: int, generator: torch.Generator) -> Tensor:
        """Columns of the memory's images for a step: half of them novel, once there are some."""
        novel = min(EXEMPLARS // 2, old - n_base)
        base = min(EXEMPLARS - EXEMPLARS // 2 if novel else EXEMPLARS, n_base)
        return torch.cat(
            [
                torch.randperm(n_base, generator=generator)[:base],
                n_base + torch.randperm(old - n_base, generator=generator)[:novel],
            ]
        )

    def _new_exemplars(self, pictures: Tensor, columns: Tensor, old: int) -> Tensor:
        unit = encode(self.encoder, self.inputs(pictures))
        closeness = (unit * normalise(self.rows)[columns]).sum(1)
        best = []
        for column in range(old, len(self.rows)):
            mine = (columns == column).nonzero()[:, 0]
            best.append(mine[closeness[mine].argmax()])
        return pictures[torch.stack(best)]

    def logits(self, unit: Tensor, base: Tensor) -> Tensor:
        from_base = self.head.unit_logits(base)
        if self.attention is None:
            return from_base
        now = self._scores(unit, self.rows)
        return self.attention.aggregated(self.attention(from_base, now), from_base, now)

    def tensors(self) -> list[Tensor]:
        own = [] if self.attention is None else [*self.attention.state_dict().values()]
        return [self.rows, self.memory, *own]


def _upper_parameters(encoder: nn.Module) -> list[nn.Parameter]:
    """Parameters of the stages after the second: what `upper` runs through."""
    return [p for name, p in encoder.named_parameters() if name.startswith(("layer3.", "layer4."))]
