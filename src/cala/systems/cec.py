"""CEC (Zhang et al., CVPR 2021): classifiers adapt to each other by attention.

The first stage is ordinary base training: start from its encoder with `--init`. The second is
here: pseudo sessions in which turned copies of base classes play the new ones.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cala.core.cala import normalise
from cala.core.rows import Array, chunks
from cala.errors import InputError
from cala.heads.base import Traits
from cala.heads.base_data import BaseData
from cala.heads.checks import is_auto
from cala.systems.common.attention import PART_PREFIX, SCALE, AttentionObjective, SetAttention
from cala.systems.common.with_parts import HeadWithParts, network
from cala.systems.published import Published, base_session
from cala.systems.registry import System

WAY, QUERIES = 15, 15
FORGET = 0.1  # share by which an episode moves the class means that validation uses


class Cec(HeadWithParts):
    """Logits 16·cos after attention over all seen prototypes and the query.

    scale : "auto" is 16, as in training
    """

    name = "cec"
    traits: ClassVar[Traits] = HeadWithParts.traits._replace(takes_encoder_scale=False)

    _attention: SetAttention  # forks share it: it is read only

    @classmethod
    def part_shapes(cls, dim: int) -> dict[str, tuple[int | None, ...]]:
        with torch.device("meta"):
            tensors = SetAttention(dim).state_dict()
        return {PART_PREFIX + k: tuple(v.shape) for k, v in tensors.items()}

    def _take_parts(self) -> None:
        self._attention = network(
            lambda: SetAttention(self.dim), self.parts, PART_PREFIX, self.dtype
        )

    def _scores(self, unit: Array, members: Array | None) -> Array:
        weights = torch.from_numpy(self._weights)
        cosines: Array = self._attention.cosines(weights, torch.from_numpy(unit)).numpy()
        if members is not None:
            left = np.flatnonzero(members >= 0)
            for part in chunks(len(left), self._weights.size):
                rows = left[part]
                cosines[rows] = self._left_out(unit[rows], members[rows])
        return cosines

    def _left_out(self, unit: Array, members: Array) -> Array:
        """Cosines (n, C) of rows to prototypes that each was left out of."""
        rest, alone = self._rest(unit, members)
        sets = np.repeat(self._weights[None], len(unit), axis=0)
        each = np.arange(len(unit))
        sets[each, members] = normalise(rest)
        found = self._attention.cosines_each(torch.from_numpy(sets), torch.from_numpy(unit))
        cosines: Array = found.numpy()
        cosines[each[alone], members[alone]] = 0.0
        return cosines

    def _leaves_out_fairly(self, data: BaseData) -> bool:
        """Every row that is left out has prototypes of its own, and attention over all of them:
        refitting without a fifth of the rows is cheaper."""
        return False

    @property
    def _fits_scale(self) -> bool:
        return False

    def _take_scale(self, scale: float | str) -> None:
        self.scale = SCALE if is_auto(scale) else float(scale)


class PseudoIncremental(AttentionObjective):
    """One shot of each of 15 base classes, and of the same turned, against queries of all 30.

    queries : of each class
    """

    means: Tensor  # (B, d)

    def build(self, queries: int = QUERIES) -> None:
        super().build()
        self.queries, self.way = queries, min(WAY, self.n_base)
        self.register_buffer("means", torch.zeros(self.n_base, self.dim))

    def begin(self, means: Tensor) -> None:
        self.means.copy_(means)

    def rows(self, shuffled: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Queries of each class, class by class, then one shot of each."""
        classes = torch.randperm(self.n_base, generator=generator)[: self.way]
        of_class = [draw_rows(labels, int(c), self.queries, generator) for c in classes]
        return torch.cat([*(rows[1:] for rows in of_class), *(rows[:1] for rows in of_class)])

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        way = self.way
        place = torch.arange(way, device=labels.device)
        own = torch.cat([place.repeat_interleave(self.queries), place])  # of every image
        turns = torch.randint(1, 4, (way,)).to(labels.device)
        unit = F.normalize(self.encoder(images).float(), dim=1)
        turned = F.normalize(self.encoder(turn(images, turns[own])).float(), dim=1)
        shots = torch.cat([unit[-way:], turned[-way:]])
        queries = torch.cat([unit[:-way], turned[:-way]])
        targets = torch.cat([own[:-way], way + own[:-way]])
        logits = SCALE * self.attention(shots, queries).float()
        self._move_means(unit.detach(), labels)
        # For the accuracy shown, the column of a class is its label.
        shown = logits.new_full((len(unit) - way, self.n_base), -SCALE).detach()
        shown[:, labels[-way:]] = logits.detach()[: len(unit) - way, :way]
        return F.cross_entropy(logits, targets), shown

    def _move_means(self, unit: Tensor, labels: Tensor) -> None:
        sums = torch.zeros_like(self.means).index_add_(0, labels, unit)
        seen = labels.unique()
        moved = (1 - FORGET) * self.means[seen] + FORGET * F.normalize(sums[seen], dim=1)
        self.means[seen] = F.normalize(moved, dim=1)

    def logits(self, images: Tensor) -> Tensor:
        unit = F.normalize(self.encoder(images), dim=1)
        return SCALE * self.attention.cosines(self.means, unit)


def draw_rows(labels: Tensor, label: int, queries: int, generator: torch.Generator) -> Tensor:
    """A shot and some queries (1 + queries,) of a class; no query is the shot."""
    rows = (labels == label).nonzero()[:, 0]
    if len(rows) < 2:
        detail = f"base class {label} has {len(rows)} training image, an episode needs two"
        raise InputError(detail, "give every base class two or more", code="too_few_images")
    shot, *_ = order = rows[torch.randperm(len(rows), generator=generator)]
    rest = order[1:].repeat(-(-queries // (len(rows) - 1)))[:queries]
    return torch.cat([shot[None], rest])


def turn(images: Tensor, turns: Tensor) -> Tensor:
    """Images (n, 3, s, s), each turned by a number (n,) of quarter turns."""
    out = torch.empty_like(images)
    for quarters in range(4):
        chosen = turns == quarters
        out[chosen] = images[chosen].rot90(quarters, (2, 3))
    return out


#: 100 epochs of 50 episodes, halved after every 20, in passes over all base images.
_BASE = base_session(WAY * (1 + QUERIES), 2e-3, 40, (8, 16, 24, 32), factor=0.5)
_BIRDS = base_session(WAY * (1 + 10), 2e-4, 275, (55, 110, 165, 220), factor=0.5)
PUBLISHED = {
    "cifar100": Published("resnet20", _BASE, loss={"queries": QUERIES}),
    "mini_imagenet": Published("resnet18", {**_BASE, "lr": 2e-4}, loss={"queries": QUERIES}),
    "cub200": Published("resnet18", _BIRDS, loss={"queries": 10}),
}
SYSTEM = System(
    PseudoIncremental,
    changes={**_BASE, "epochs": 50, "milestones": (10, 20, 30, 40)},
    continues=True,
)
