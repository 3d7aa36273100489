"""The simplex and the loss towards its vertices, against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cala.systems.nc_fscil import dot_regression, simplex_etf
from refusals import refused


def vertices_of(n_classes: int, dim: int, seed: int = 0) -> torch.Tensor:
    return simplex_etf(n_classes, dim, torch.Generator().manual_seed(seed))


@given(st.integers(2, 40), st.integers(0, 20), st.integers(0, 100))
def test_all_vertices_are_equally_far_apart(n_classes, more, seed):
    vertices = vertices_of(n_classes, n_classes + more, seed).double()
    cosines = vertices @ vertices.T
    expected = torch.full_like(cosines, -1 / (n_classes - 1)).fill_diagonal_(1.0)
    torch.testing.assert_close(cosines, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(vertices.sum(0), torch.zeros(n_classes + more).double())


def test_a_generator_decides_them():
    assert torch.equal(vertices_of(5, 8), vertices_of(5, 8))
    assert not torch.equal(vertices_of(5, 8), vertices_of(5, 8, seed=1))
    state = torch.get_rng_state()
    vertices_of(5, 8)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("n_classes", "code", "named"), [(1, "one_class", [1]), (5, "too_many_classes", [5, 4])]
)
def test_what_cannot_be_is_said(n_classes, code, named):
    with refused(*named, code=code):
        simplex_etf(n_classes, 4)


def test_dot_regression():
    rng = np.random.default_rng(0)
    outputs, targets = rng.normal(size=(7, 5)), rng.normal(size=(7, 5))
    targets /= np.linalg.norm(targets, axis=1, keepdims=True)
    expected = []
    for h, m in zip(outputs, targets, strict=True):
        cosine = sum(a * b for a, b in zip(h, m, strict=True)) / math.sqrt(sum(a * a for a in h))
        expected.append(10 * 0.5 * (cosine - 1) ** 2)
    found = dot_regression(torch.tensor(outputs), torch.tensor(targets))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    at_home = dot_regression(3.0 * torch.tensor(targets), torch.tensor(targets))
    assert at_home.abs().max() < 1e-12
