"""LIMIT (Zhou et al., TPAMI 2022): many pseudo sessions per step, and a set of classifiers that
calibrates itself to the query by attention. Starts from ordinary base training (`--init`)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cala.systems.cec import Cec
from cala.systems.common.attention import SCALE, AttentionObjective
from cala.systems.published import Published, base_session
from cala.systems.registry import System
from cala.training.recipes import Recipe

TASKS, WAY = 32, 16
ATTENTION_LR = 10.0  # times the encoder's: it starts from nothing


class Limit(Cec):
    """Inference is CEC's; what differs is how encoder and attention were trained."""

    name = "limit"


class MultiPhase(AttentionObjective):
    """Each step plays 32 tasks on one batch: 16 classes are known by a single shot alone.

    Every task starts from the embeddings as the encoder gave them, so none sees what another
    made of them.
    """

    def build(self) -> None:
        super().build()
        self.weight = nn.Parameter(torch.randn(self.n_base, self.dim))

    def begin(self, means: Tensor) -> None:
        with torch.no_grad():
            self.weight.copy_(means)

    def rows(self, shuffled: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """The batch, then one image of every class that is not in the batch.

        A class of which the batch holds all images gives one of them up.
        """
        order = torch.randperm(len(labels), generator=generator)
        inside = torch.zeros(len(labels), dtype=torch.bool)
        inside[shuffled] = True
        order = order[inside[order].int().argsort(stable=True)]  # those outside come first
        by_class = labels[order].argsort(stable=True)
        classes = torch.arange(self.n_base)
        shots = order[by_class[torch.searchsorted(labels[order][by_class], classes)]]
        return torch.cat([shuffled[~torch.isin(shuffled, shots)], shots])

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        unit = F.normalize(self.encoder(images).float(), dim=1)
        queries, shots = unit[: -self.n_base], unit[-self.n_base :]
        targets = labels[: -self.n_base]
        rows = F.normalize(self.weight, dim=1)
        way = min(WAY, self.n_base - 1)
        tasks = []
        for _ in range(TASKS):
            chosen = torch.randperm(self.n_base)[:way].to(labels.device)
            tasks.append(rows.index_copy(0, chosen, F.normalize(shots[chosen], dim=1)))
        loss = torch.zeros((), device=unit.device)
        shown: Tensor = torch.zeros(0)
        for task in tasks:
            # What backward needs is made again there: 32 tasks at once would take gigabytes.
            cosines = checkpoint(self.attention, task, queries, use_reentrant=False)
            logits = SCALE * cosines.float()
            loss = loss + F.cross_entropy(logits, targets) / TASKS
            shown = logits
        return loss, shown.detach()

    def logits(self, images: Tensor) -> Tensor:
        unit = F.normalize(self.encoder(images), dim=1)
        return SCALE * self.attention.cosines(F.normalize(self.weight, dim=1), unit)

    def groups(self, recipe: Recipe) -> list[dict[str, Any]]:
        attention = list(self.attention.parameters())
        others = [*self.encoder.parameters(), self.weight]
        decay = {"weight_decay": recipe.weight_decay}
        return [
            {"params": others, **decay},
            {"params": attention, "factor": ATTENTION_LR, **decay},
        ]


_BASE = base_session(128, 2e-4, 20, (2, 4, 6), factor=0.3)
PUBLISHED = {
    "cifar100": Published("resnet20", _BASE),
    "mini_imagenet": Published("resnet18", {**_BASE, "milestones": (3, 6, 9, 12)}),
    "cub200": Published("resnet18", {**_BASE, "epochs": 40, "milestones": (20,), "factor": 0.5}),
}
SYSTEM = System(
    MultiPhase,
    # The published steps leave most of a short budget at a thirtieth of the rate.
    changes={**_BASE, "schedule": "cosine", "milestones": (), "warmup": 0.0},
    continues=True,
)
