"""Attention among prototypes and a query, against loops written from its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from cala.systems.common.attention import SetAttention


def attention(dim: int, seed: int = 0) -> SetAttention:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = SetAttention(dim).double()
        for parameter in made.parameters():
            parameter.data += 0.2 * torch.randn_like(parameter)
    return made.eval().requires_grad_(False)


def units(n: int, dim: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(n, dim, generator=generator, dtype=torch.float64), dim=1)


def slow(made: SetAttention, prototypes: np.ndarray, query: np.ndarray) -> np.ndarray:
    """One query: a set of C + 1 tokens, all of which attend to all."""
    w = {k: v.numpy() for k, v in made.state_dict().items()}
    d = len(query)
    tokens = np.sqrt(d) * np.vstack([prototypes, query])
    out = []
    for one in tokens:
        scores = [
            (w["query.weight"] @ one) @ (w["key.weight"] @ other) / np.sqrt(d) for other in tokens
        ]
        shares = np.exp(scores) / np.exp(scores).sum()
        summed = sum(
            s * (w["value.weight"] @ other) for s, other in zip(shares, tokens, strict=True)
        )
        x = one + w["out.weight"] @ summed + w["out.bias"]
        x = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * w["norm.weight"] + w["norm.bias"]
        out.append(x / np.linalg.norm(x))
    return np.array([p @ out[-1] for p in out[:-1]])


def test_against_loops():
    made, prototypes, queries = attention(6), units(4, 6, 1), units(3, 6, 2)
    expected = np.stack([slow(made, prototypes.numpy(), q) for q in queries.numpy()])
    for found in (
        made(prototypes, queries),
        made.cosines(prototypes, queries),
        made.cosines_each(prototypes.expand(3, 4, 6), queries),
    ):
        assert found.shape == (3, 4)
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


@given(st.integers(1, 6), st.integers(1, 5), st.integers(2, 9), st.integers(0, 99))
def test_the_order_of_classes_and_the_other_queries_do_not_matter(n_classes, n, dim, seed):
    made = attention(dim, seed)
    prototypes, queries = units(n_classes, dim, seed), units(n, dim, seed + 1)
    whole = made.cosines(prototypes, queries)
    order = torch.randperm(n_classes, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(made.cosines(prototypes[order], queries), whole[:, order])
    torch.testing.assert_close(made.cosines(prototypes, queries[-1:]), whole[-1:])


def test_it_starts_without_effect():
    """Cosines after layer norm, which only centres: that is what the first step works on."""
    fresh = SetAttention(8).double().eval()
    prototypes, queries = units(5, 8, 0), units(4, 8, 1)
    centred = [F.normalize(x - x.mean(1, keepdim=True), dim=1) for x in (prototypes, queries)]
    found = fresh.cosines(prototypes, queries)
    torch.testing.assert_close(found, centred[1] @ centred[0].T, rtol=1e-3, atol=1e-4)


def test_dropout_lives_in_training_alone():
    made, prototypes, queries = attention(6), units(4, 6, 1), units(3, 6, 2)
    still = made(prototypes, queries)
    assert torch.equal(still, made(prototypes, queries))
    made.train()
    assert not torch.equal(made(prototypes, queries), made(prototypes, queries))
    each = made.cosines_each(prototypes.expand(3, 4, 6), queries)
    torch.testing.assert_close(each, still)
    assert made.training


def test_no_query_has_a_copy_of_the_prototypes(monkeypatch):
    """Many queries against many classes go through in parts of bounded size."""
    monkeypatch.setattr("cala.systems.common.attention._SCORES", 64)
    made, prototypes, queries = attention(6), units(4, 6, 1), units(13, 6, 2)
    torch.testing.assert_close(made.cosines(prototypes, queries), made(prototypes, queries))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_types(dtype):
    made = attention(5).to(dtype)
    assert made.cosines(units(3, 5, 0).to(dtype), units(2, 5, 1).to(dtype)).dtype == dtype
