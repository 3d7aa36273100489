"""TOPIC's sessions: the nodes of a neural gas hold old embeddings, new ones gather and keep apart.

Its modules were never published. From the paper's definitions: anchors, both losses and their
weights. Our reading: which rows train, that a step looks at some of the anchors only, that each
new class has one node, and what the max loss keeps apart.
"""

from __future__ import annotations

import copy
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cala.core.neural_gas import fit_gas
from cala.core.prototypes import normalise
from cala.core.pseudo import draw_base_queries
from cala.heads.icarl_star import ANCHORS, PER_CLASS
from cala.heads.nearest_mean import NearestMean
from cala.methods.learner import Learner, Start, encode, nesterov

LR, DECAY = 3e-4, 5e-4  # published: 0.1, for logits that are no scaled cosines
FROZEN, LATER = (
    0.3,
    6 / 7,
)  # shares of a session: rows alone learn before, a tenth of the rate after
AT_ONCE = 64  # anchors per step
ANCHOR, MIN, MAX = 350.0, 0.3, 1e-5
MARGIN = 0.5
WIDE, WIDE_WEIGHT = 0.5, 0.9
CENTRE_LR = 0.1


class TopicLearner(Learner):
    """The encoder moves under three losses: cross-entropy of the shots, the anchors' embeddings
    stay (AL), shots gather at their class's node and away from others (MML).
    """

    published: ClassVar[int] = 70  # epochs of one step each
    short: ClassVar[int] = 20

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        assert isinstance(self.head, NearestMean)
        self.scale = self.head.scale
        generator = torch.Generator().manual_seed(start.seed)
        some = draw_base_queries(start.columns, PER_CLASS, generator)
        unit = self.head.embed(start.features[some])
        gas = fit_gas(unit, start.columns[some], ANCHORS, generator)
        self.nodes, self.labels = gas.nodes, gas.labels
        self.weights = torch.where(gas.spread > WIDE, WIDE_WEIGHT, 1.0)
        self.anchors = start.pictures(some[gas.anchors])
        self.rows = normalise(self.head.prototypes)

    def _learn(self, pictures: Tensor, features: Tensor, columns: Tensor) -> None:
        now = copy.deepcopy(self.encoder)
        shots = encode(now, self.inputs(pictures))
        old, n_classes = len(self.rows), int(columns.max()) + 1
        centres = torch.stack([shots[columns == c].mean(0) for c in range(old, n_classes)])
        new = nn.Parameter(normalise(centres))
        moving = list(now.parameters())
        optimiser = nesterov([{"params": [*moving, new]}], LR, DECAY)
        generator = self.generator()
        for step in range(self.length):
            for parameter in moving:
                parameter.requires_grad_(step >= FROZEN * self.length)
            for group in optimiser.param_groups:
                group["lr"] = LR * (0.1 if step >= LATER * self.length else 1.0)
            some = torch.randperm(len(self.nodes), generator=generator)[:AT_ONCE]
            inputs = [self.augmented(pictures, generator), self.inputs(self.anchors[some])]
            unit = F.normalize(now(torch.cat(inputs)), dim=1)
            mine, held = unit[: len(columns)], unit[len(columns) :]
            scores = self.scale * mine @ torch.cat([self.rows, new]).T
            loss = (
                F.cross_entropy(scores, columns)
                + ANCHOR * (self.weights[some] * (held - self.nodes[some]).square()).mean()
                + MIN * (mine - centres[columns - old]).square().sum(1).mean() / 2
                + MAX * self._too_near(mine, columns, centres, old)
            )
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            for column in range(old, n_classes):
                own = mine.detach()[columns == column].mean(0)
                centres[column - old] += CENTRE_LR * (own - centres[column - old])
        self.encoder = now.requires_grad_(False)
        self.rows = torch.cat([self.rows, new.detach()])
        self._insert(pictures, columns, centres, old)

    def _too_near(self, unit: Tensor, columns: Tensor, centres: Tensor, old: int) -> Tensor:
        """How far shots lie within the margin of the nearest node of another class."""
        nodes = torch.cat([self.nodes, centres])
        owners = torch.cat([self.labels, torch.arange(old, old + len(centres))])
        apart = torch.cdist(unit, nodes).masked_fill(owners == columns[:, None], torch.inf)
        return (MARGIN - apart.amin(1)).clamp_min(0).sum()

    def _insert(self, pictures: Tensor, columns: Tensor, centres: Tensor, old: int) -> None:
        """New classes become nodes that later sessions hold as well."""
        unit = encode(self.encoder, self.inputs(pictures))
        places, spread = [], []
        for column in range(old, old + len(centres)):
            mine = (columns == column).nonzero()[:, 0]
            apart = (unit[mine] - centres[column - old]).square()
            places.append(mine[apart.sum(1).argmin()])
            spread.append(apart.mean(0))
        self.nodes = torch.cat([self.nodes, centres])
        self.labels = torch.cat([self.labels, torch.arange(old, old + len(centres))])
        self.anchors = torch.cat([self.anchors, pictures[torch.stack(places)]])
        wide = torch.where(torch.stack(spread) > WIDE, WIDE_WEIGHT, 1.0)
        self.weights = torch.cat([self.weights, wide])

    def logits(self, unit: Tensor, base: Tensor) -> Tensor:
        return self.scale * unit @ self.rows.T

    def tensors(self) -> list[Tensor]:
        return [self.nodes, self.labels, self.weights, self.anchors, self.rows]
