"""A neural gas spreads over the rows, and every node has an image of its own."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from cala.systems.common.neural_gas import fit_gas
from problems import blobs


def seeded(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_neural_gas_spreads_over_the_rows():
    x, y = blobs(5, 40, 6, spread=0.2)
    gas = fit_gas(x, y, 20, seeded(0))
    assert 10 <= len(gas.nodes) <= 20
    assert set(gas.labels.tolist()) == set(range(5))
    assert np.array_equal(y[gas.anchors], gas.labels)
    apart = cdist(x, gas.nodes)
    assert apart.min(1).mean() < 0.7 * cdist(x, x.mean(0)[None]).mean()
    assert gas.spread.shape == gas.nodes.shape
    nearest = apart.argmin(1)
    for node in range(len(gas.nodes)):
        own = np.flatnonzero(nearest == node)
        np.testing.assert_allclose(gas.spread[node], ((x[own] - gas.nodes[node]) ** 2).mean(0))
        same = own[y[own] == gas.labels[node]]
        assert gas.anchors[node] == same[apart[same, node].argmin()]
    again = fit_gas(x, y, 20, seeded(0))
    assert np.array_equal(gas.nodes, again.nodes)


@pytest.mark.parametrize("count", [1, 3, 100])
def test_a_gas_of_few_rows(count):
    x, y = blobs(2, 2, 3)
    gas = fit_gas(x, y, count, seeded(1))
    assert 1 <= len(gas.nodes) <= 4
    assert np.isfinite(gas.nodes).all()
