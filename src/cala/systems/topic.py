"""TOPIC (Tao et al., CVPR 2020): a neural gas keeps the shape of the embeddings while they move.

Base session: an ordinary softmax classifier. Sessions: the nodes of the gas hold old embeddings,
new ones gather and keep apart.

Its modules were never published. Defined in TOPIC's paper: anchors, both losses and their
weights. Our reading: which rows train, that a step looks at some of the anchors only, that each
new class has one node, and what the max loss keeps apart.
"""

from __future__ import annotations

import copy
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cala.core.rows import Array, ClassRows
from cala.heads.base import Traits
from cala.heads.nearest_mean import NearestMean
from cala.systems.common.learner import (
    Learner,
    SessionStart,
    as_tensor,
    best_of_each,
    class_means,
    descend,
    nesterov,
)
from cala.systems.common.neural_gas import fit_gas
from cala.systems.icarl import BASE_CHANGES, SoftmaxClassifier
from cala.systems.icarl_star import ANCHORS, PER_CLASS
from cala.systems.published import Published
from cala.systems.registry import System

LR, DECAY = 1e-3, 5e-4  # published: 0.1, for logits that are not scaled cosines
FROZEN = 0.3  # share of a session in which rows learn alone
LATER = 6 / 7  # share after which the rate is a tenth
AT_ONCE = 64  # anchors per step
ANCHOR, MIN, MAX = 350.0, 0.3, 1e-5
_MARGIN = 0.5
WIDE, WIDE_WEIGHT = 0.5, 0.9  # of variances of embeddings of length √d
CENTRE_LR = 0.1


class Topic(NearestMean):
    """TOPIC's base branch: rows that are class means, as its sessions start from.

    `TopicLearner` trains the encoder in sessions.
    """

    name = "topic"
    traits: ClassVar[Traits] = NearestMean.traits._replace(
        metrics=("cosine",), changes_encoder=True
    )


class TopicLearner(Learner):
    """The encoder moves under three losses: cross-entropy of the shots, anchor images stay where
    they are (AL), shots gather at their class's node and away from others (MML).
    """

    short: ClassVar[int] = 20

    def __init__(self, start: SessionStart) -> None:
        super().__init__(start)
        rng = np.random.default_rng(start.seed)
        every = ClassRows.of(start.features, start.columns, start.head.n_base)
        some = every.draw(PER_CLASS, rng).order
        unit = self.head.embed(start.features[some])
        gas = fit_gas(unit, start.columns[some], ANCHORS, rng)
        self.nodes, self.labels = as_tensor(gas.nodes), torch.from_numpy(gas.labels)
        self.anchors = start.pictures(some[gas.anchors])
        self.held = as_tensor(unit[gas.anchors])  # where the anchors are to stay
        self.weights = importance(as_tensor(gas.spread))

    def _learn(self, pictures: Tensor, columns: Tensor) -> None:
        now = copy.deepcopy(self.encoder)
        old = len(self.rows)
        shots = self.encode(pictures)
        rows = self.imprinted(shots, columns).to(self.device)
        known, new = rows[:old], nn.Parameter(rows[old:].clone())
        centres = class_means(shots, columns, old).to(self.device)
        nodes = torch.cat([self.nodes.to(self.device), centres])
        labels = torch.cat([self.labels, old + torch.arange(len(centres))]).to(self.device)
        held, weights = self.held.to(self.device), self.weights.to(self.device)
        targets = columns.to(self.device)
        moving = list(now.parameters())
        optimiser = nesterov([*moving, new], LR, DECAY)
        generator = self.generator()
        for step in range(self.length):
            for parameter in moving:
                parameter.requires_grad_(step >= FROZEN * self.length)
            for group in optimiser.param_groups:
                group["lr"] = LR * (0.1 if step >= LATER * self.length else 1.0)
            some = torch.randperm(len(self.anchors), generator=generator)[:AT_ONCE]
            inputs = [self.augmented(pictures, generator), self.inputs(self.anchors[some])]
            unit = F.normalize(now(torch.cat(inputs)), dim=1)
            mine, anchored = unit[: len(targets)], unit[len(targets) :]
            loss = (
                F.cross_entropy(self.scores(mine, torch.cat([known, new])), targets)
                + ANCHOR * (weights[some] * (anchored - held[some]).square()).mean()
                + MIN * (mine - nodes[len(self.nodes) + targets - old]).square().sum(1).mean() / 2
                + MAX * too_near(mine, targets, nodes, labels)
            )
            descend(optimiser, loss)
            moved = class_means(mine.detach(), targets, old)
            nodes = torch.cat([nodes[: len(self.nodes)], centres.lerp_(moved, CENTRE_LR)])
        self.encoder = now.requires_grad_(False)
        self.rows = torch.cat([self.rows, new.detach().cpu()])
        self._insert(pictures, columns, centres.cpu(), old)

    def _insert(self, pictures: Tensor, columns: Tensor, centres: Tensor, old: int) -> None:
        """New classes become nodes that later sessions hold as well."""
        unit = self.encode(pictures)
        apart = (unit - centres[columns - old]).square()
        best = best_of_each(-apart.sum(1), columns, old, old + len(centres))
        self.nodes = torch.cat([self.nodes, centres])
        self.labels = torch.cat([self.labels, old + torch.arange(len(centres))])
        self.anchors = torch.cat([self.anchors, pictures[best]])
        self.held = torch.cat([self.held, unit[best]])
        self.weights = torch.cat([self.weights, importance(class_means(apart, columns, old))])

    def _logits(self, unit: Tensor, base: Array) -> Tensor:
        return self.scores(unit, self.rows)


def importance(spread: Tensor) -> Tensor:
    """How much each dimension of a node counts, by the variances (V, d) of unit vectors there."""
    return torch.where(spread.shape[1] * spread > WIDE, WIDE_WEIGHT, 1.0)


def too_near(unit: Tensor, columns: Tensor, nodes: Tensor, labels: Tensor) -> Tensor:
    """Sum of how far shots (n, d) reach into the margin of the nearest node of another class."""
    apart = torch.cdist(unit, nodes).masked_fill(labels == columns[:, None], torch.inf)
    return (_MARGIN - apart.amin(1)).clamp_min(0).sum()


_MISSING = "the schedule of the base session; here that of iCaRL, for the same number of epochs"
_BASE = {**BASE_CHANGES, "epochs": 100, "milestones": (30, 60, 85)}
#: A session's steps are its epochs: all shots are one batch.
PUBLISHED = {
    "cifar100": Published("resnet18-small", _BASE, session={"steps": 70}, missing=_MISSING),
    "mini_imagenet": Published("resnet18-small", _BASE, session={"steps": 100}, missing=_MISSING),
    "cub200": Published(
        "resnet18",
        {**BASE_CHANGES, "lr": 0.01, "epochs": 120, "milestones": (36, 72, 102)},
        session={"steps": 120},
        missing=_MISSING,
    ),
}
SYSTEM = System(SoftmaxClassifier, BASE_CHANGES, learner=TopicLearner)
