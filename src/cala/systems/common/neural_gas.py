"""Neural gas (Martinetz & Schulten, 1991): nodes that follow the density of embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cala.core.rows import Array

_ROUNDS = 12
NARROWEST = 0.1  # neighbourhood of the last round, in ranks
RANKS = 6.0  # neighbours further away than this many widths are ignored


@dataclass(frozen=True)
class NeuralGas:
    """V nodes, each represented by an image.

    nodes : (V, d); anchors : (V,) rows of the images; labels : (V,) of these
    spread : (V, d) variances of the rows that are nearest to a node
    """

    nodes: Array
    anchors: Array
    labels: Array
    spread: Array


def fit_gas(features: Array, labels: Array, count: int, rng: np.random.Generator) -> NeuralGas:
    """Let `count` nodes learn rows (n, d) with labels (n,); a node that no row is nearest to goes.

    Every round each node moves to the mean of all rows, weighed by exp(−rank / λ): how many nodes
    are nearer to the row than it; λ falls from half of the nodes to almost none.
    """
    count = min(count, len(features))
    nodes = features[rng.permutation(len(features))[:count]]
    first = max(count / 2, NARROWEST)
    for step in range(_ROUNDS):
        width = first * (NARROWEST / first) ** (step / (_ROUNDS - 1))
        nearest = min(count, max(1, int(RANKS * width) + 1))
        weight = np.exp(-np.arange(nearest) / width).astype(features.dtype)
        pull = np.zeros((len(features), count), features.dtype)
        np.put_along_axis(pull, _ranked(features, nodes, nearest), weight[None], axis=1)
        total = pull.sum(0)[:, None]
        nodes = np.where(total > 0, pull.T @ features / np.maximum(total, 1e-12), nodes)
    return _with_anchors(nodes, features, labels)


def _distances(features: Array, nodes: Array) -> Array:
    """Squared distances (n, V) of rows (n, d) to nodes (V, d), less a number for each row."""
    return np.einsum("vd,vd->v", nodes, nodes) - 2 * features @ nodes.T


def _ranked(features: Array, nodes: Array, most: int) -> Array:
    """The `most` nearest nodes of each row, nearest first: (n, most)."""
    apart = _distances(features, nodes)
    found = np.argpartition(apart, most - 1, axis=1)[:, :most]
    order = np.take_along_axis(apart, found, axis=1).argsort(1)
    return np.take_along_axis(found, order, axis=1)


def _with_anchors(nodes: Array, features: Array, labels: Array) -> NeuralGas:
    """Give each node the nearest image of the class that most of its rows are of."""
    nearest = _distances(features, nodes).argmin(1)
    votes = np.zeros((len(nodes), int(labels.max()) + 1), np.int64)
    np.add.at(votes, (nearest, labels), 1)
    kept, winners = np.flatnonzero(votes.any(1)), votes.argmax(1)
    anchors, spread = [], []
    for node in kept:
        own = np.flatnonzero(nearest == node)
        squared = (features[own] - nodes[node]) ** 2
        spread.append(squared.mean(0))
        right = labels[own] == winners[node]
        anchors.append(own[right][squared[right].sum(1).argmin()])
    return NeuralGas(nodes[kept], np.array(anchors), winners[kept], np.stack(spread))
