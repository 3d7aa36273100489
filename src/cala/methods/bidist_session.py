"""BiDist's sessions: a branch is fine-tuned, taught by the base branch and by its own past."""

from __future__ import annotations

import copy
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cala.core.bilateral import BranchAttention, TeacherShare
from cala.core.distillation import distillation
from cala.core.prototypes import normalise
from cala.methods.learner import Learner, Start, best_of_each, lower, nesterov, upper

LR, LR_SMALL, DECAY = 1e-3, 1e-2, 5e-4
EXEMPLARS, NEW_TAUGHT = 50, 5  # per step: of the memory, and new images that distillation sees
TEMPERATURE = 16.0
KD = 25.0  # published: 100, with which the first session diverges here
MEMORY, AGGREGATED, BINARY, SHARE = 5.0, 5.0, 50.0, 1.0


class BidistLearner(Learner):
    """Keeps one image per class; the encoder's last stage and all rows move.

    The lower half stays, so that all three branches (base, last session's, this one's) share it.
    """

    upper_only: ClassVar[bool] = True
    published: ClassVar[int] = 100  # steps
    short: ClassVar[int] = 40

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        closeness = (self.head.embed(start.features) * self.rows[start.columns]).sum(1)
        best = best_of_each(closeness, start.columns, 0, start.head.n_base)
        self.memory = start.pictures(best)  # (C, s, s, 3), by column
        self.attention: BranchAttention | None = None

    def _learn(self, pictures: Tensor, columns: Tensor) -> None:
        n_base, old, new = self.head.n_base, len(self.rows), len(columns)
        before, now = self.encoder, copy.deepcopy(self.encoder)
        base_rows = normalise(self.head.prototypes).to(self.device)
        old_rows = self.imprinted(self.encode(pictures), columns).to(self.device)
        rows = nn.Parameter(old_rows.clone())
        generator = self.generator()
        share, attention = self._networks(len(rows), generator)
        moving = last_stage(now)
        for parameter in moving:
            parameter.requires_grad_(True)
        small = [*share.parameters(), *attention.parameters()]
        groups: list[dict[str, object]] = [
            {"params": [*moving, rows]},
            {"params": small, "lr": LR_SMALL},
        ]
        optimiser = nesterov(groups, LR, DECAY)
        towards_base = base_rows @ base_rows[:n_base].T  # (C, B)
        for _ in range(self.length):
            chosen = self._exemplars(old, n_base, generator)
            images = self.augmented(torch.cat([pictures, self.memory[chosen]]), generator)
            some = torch.randperm(new, generator=generator)[:NEW_TAUGHT]
            taught = torch.cat([some, torch.arange(new, new + len(chosen))]).to(self.device)
            targets = torch.cat([columns, chosen]).to(self.device)
            novel = targets >= n_base
            with torch.no_grad():
                hidden = lower(before, images)
                from_base = self.scores(upper(self.start.encoder, hidden), base_rows)
                from_before = self.scores(upper(before, hidden), old_rows)
            scores = self.scores(upper(now, hidden), rows)
            c = torch.where(novel, share(towards_base[targets]), 1.0)[:, None]
            teacher = c * from_base + (1 - c) * from_before
            # What tells base from novel is learned by the attention alone.
            weights = attention(from_base, scores.detach())
            both = attention.aggregated(weights, from_base, scores)
            taught_loss = distillation(scores[taught], teacher[taught], TEMPERATURE)
            loss = (
                F.cross_entropy(scores[:new], targets[:new])
                + KD * TEMPERATURE**2 * taught_loss
                + MEMORY * F.cross_entropy(scores[new:], targets[new:])
                + AGGREGATED * F.cross_entropy(both, targets)
                + BINARY * F.cross_entropy(weights, novel.long())
                + SHARE * (1 - c[novel]).mean()
            )
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
        self.encoder = now.requires_grad_(False)
        self.rows, self.attention = rows.detach().cpu(), attention.requires_grad_(False).cpu()
        closeness = (self.encode(pictures) * normalise(self.rows)[columns]).sum(1)
        best = best_of_each(closeness, columns, old, len(self.rows))
        self.memory = torch.cat([self.memory, pictures[best]])

    def _networks(
        self, n_classes: int, generator: torch.Generator
    ) -> tuple[TeacherShare, BranchAttention]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator.initial_seed())
            made = TeacherShare(self.head.n_base), BranchAttention(n_classes)
        return made[0].to(self.device), made[1].to(self.device)

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

    def logits(self, unit: Tensor, base: Tensor) -> Tensor:
        from_base = self.head.unit_logits(base)
        if self.attention is None:
            return from_base
        now = self.scores(unit, self.rows)
        return self.attention.aggregated(self.attention(from_base, now), from_base, now)

    def tensors(self) -> list[Tensor]:
        own = [] if self.attention is None else [*self.attention.state_dict().values()]
        return [self.memory, *own]


def last_stage(encoder: nn.Module) -> list[nn.Parameter]:
    """Parameters of the encoder's last stage, a part of its upper half."""
    last = max(name.split(".")[0] for name, _ in encoder.named_parameters() if "layer" in name)
    return [p for name, p in encoder.named_parameters() if name.startswith(f"{last}.")]
