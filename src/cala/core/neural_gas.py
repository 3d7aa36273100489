"""Neural gas (Martinetz & Schulten, 1991): nodes that spread over embeddings as these lie."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ROUNDS = 12
NARROWEST = 0.1  # neighbourhood of the last round, in ranks
RANKS = 6.0  # neighbours further than so many widths have no say


@dataclass(frozen=True)
class NeuralGas:
    """V nodes, each with the image that stands for it.

    nodes : (V, d); anchors : (V,) rows of the images; labels : (V,) of these
    spread : (V, d) variances of the rows that are nearest to a node
    """

    nodes: Tensor
    anchors: Tensor
    labels: Tensor
    spread: Tensor


def fit_gas(features: Tensor, labels: Tensor, count: int, generator: torch.Generator) -> NeuralGas:
    """Let `count` nodes learn rows (n, d) with labels (n,); a node that no row is nearest to goes.

    Every round each node moves to the mean of all rows, weighed by exp(−rank / λ): how many nodes
    are nearer to the row than it; λ falls from half of the nodes to almost none.
    """
    count = min(count, len(features))
    start = torch.randperm(len(features), generator=generator)[:count].to(features.device)
    nodes = features[start].clone()
    first = max(count / 2, NARROWEST)
    for step in range(ROUNDS):
        width = first * (NARROWEST / first) ** (step / (ROUNDS - 1))
        nearest = min(count, max(1, int(RANKS * width) + 1))
        found = torch.cdist(features, nodes).topk(nearest, largest=False).indices
        weight = torch.exp(-torch.arange(nearest, device=features.device) / width).to(features)
        pull = features.new_zeros(len(features), count).scatter_(1, found, weight.expand_as(found))
        sums, total = pull.T @ features, pull.sum(0)
        nodes = torch.where(total[:, None] > 0, sums / total.clamp_min(1e-12)[:, None], nodes)
    return _with_anchors(nodes, features, labels)


def _with_anchors(nodes: Tensor, features: Tensor, labels: Tensor) -> NeuralGas:
    """Give each node the nearest image of the class that most of its rows are of."""
    nearest = torch.cdist(features, nodes).argmin(1)
    votes = torch.zeros(len(nodes), int(labels.max()) + 1, device=labels.device)
    votes.index_put_((nearest, labels), torch.ones(len(labels), device=labels.device), True)
    kept = votes.sum(1).nonzero()[:, 0]
    winners = votes.argmax(1)
    anchors, spread = [], []
    for node in kept.tolist():
        own = (nearest == node).nonzero()[:, 0]
        spread.append((features[own] - nodes[node]).square().mean(0))
        own = own[labels[own] == winners[node]]
        anchors.append(int(own[(features[own] - nodes[node]).square().sum(1).argmin()]))
    return NeuralGas(
        nodes[kept],
        torch.tensor(anchors, device=labels.device),
        winners[kept],
        torch.stack(spread),
    )
