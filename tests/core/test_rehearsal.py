"""What sessions that remember work with: herding, distillation, a neural gas, tuned rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from cala.core.bilateral import BranchAttention, TeacherShare
from cala.core.distillation import distillation
from cala.core.herding import herd
from cala.core.neural_gas import fit_gas
from cala.core.prototypes import normalise
from cala.core.softmax import TEMPERATURE, distilled_rows
from problems import blobs


def slow_herding(unit: np.ndarray, count: int) -> list[int]:
    mean, chosen = unit.mean(0), []
    while len(chosen) < min(count, len(unit)):
        apart = {
            i: np.linalg.norm(mean - unit[[*chosen, i]].mean(0))
            for i in range(len(unit))
            if i not in chosen
        }
        chosen.append(min(apart, key=apart.get))
    return chosen


@given(st.integers(1, 12), st.integers(0, 15), st.integers(0, 1000))
def test_herding_is_the_greedy_choice(n, count, seed):
    unit = normalise(torch.randn(n, 4, dtype=torch.float64, generator=seeded(seed)))
    found = herd(unit, count)
    assert found.tolist() == slow_herding(unit.numpy(), count)
    assert len(set(found.tolist())) == min(n, count)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@given(st.floats(0.5, 20), st.integers(0, 1000))
def test_distillation_is_the_divergence_at_a_temperature(temperature, seed):
    student, teacher = torch.randn(2, 5, 7, dtype=torch.float64, generator=seeded(seed))
    p, q = (softmax(z.numpy() / temperature) for z in (teacher, student))
    expected = (p * np.log(p / q)).sum(1).mean()
    assert float(distillation(student, teacher, temperature)) == pytest.approx(expected)
    assert float(distillation(teacher, teacher, temperature)) == pytest.approx(0.0, abs=1e-12)


def tuning_loss(rows, before, shots, columns, anchors, scale):
    loss = F.cross_entropy(scale * shots @ rows.T, columns)
    student = scale * anchors @ rows[: len(before)].T
    return loss + distillation(student, scale * anchors @ before.T, TEMPERATURE)


def test_distilled_rows_follow_the_gradient_of_their_loss():
    """One step at a time against automatic differentiation."""
    draw = seeded(0)
    start = normalise(torch.randn(6, 5, dtype=torch.float64, generator=draw))
    shots = normalise(torch.randn(8, 5, dtype=torch.float64, generator=draw))
    anchors = normalise(torch.randn(9, 5, dtype=torch.float64, generator=draw))
    columns = torch.randint(4, 6, (8,), generator=draw)
    rows, velocity = start.clone(), torch.zeros_like(start)
    for _ in range(5):
        rows.requires_grad_(True)
        loss = tuning_loss(rows, start[:4], shots, columns, anchors, 7.0)
        (gradient,) = torch.autograd.grad(loss, rows)
        velocity = 0.9 * velocity + gradient
        rows = (rows - 0.01 * (gradient + 0.9 * velocity)).detach()
    found = distilled_rows(start, 4, shots, columns, anchors, scale=7.0, steps=5, lr=0.01)
    torch.testing.assert_close(found, rows)
    assert not torch.allclose(found, start)
    alone = distilled_rows(start, 4, shots, columns, anchors[:0], scale=7.0, steps=5, lr=0.01)
    assert (alone - found).abs().max() > 1e-6


def test_a_neural_gas_spreads_over_the_rows():
    x, y = blobs(5, 40, 6, spread=0.2)
    gas = fit_gas(x, y, 20, seeded(0))
    assert 10 <= len(gas.nodes) <= 20
    assert set(gas.labels.tolist()) == set(range(5))
    assert torch.equal(y[gas.anchors], gas.labels)
    apart = torch.cdist(x, gas.nodes)
    assert float(apart.amin(1).mean()) < 0.7 * float(torch.cdist(x, x.mean(0)[None]).mean())
    assert gas.spread.shape == gas.nodes.shape
    nearest = apart.argmin(1)
    for node in range(len(gas.nodes)):
        own = x[nearest == node]
        torch.testing.assert_close(gas.spread[node], (own - gas.nodes[node]).square().mean(0))
    again = fit_gas(x, y, 20, seeded(0))
    assert torch.equal(gas.nodes, again.nodes)


@pytest.mark.parametrize("count", [1, 3, 100])
def test_a_gas_of_few_rows(count):
    x, y = blobs(2, 2, 3)
    gas = fit_gas(x, y, count, seeded(1))
    assert 1 <= len(gas.nodes) <= 4
    assert gas.nodes.isfinite().all()


def test_branches_are_weighed():
    base, now = torch.randn(2, 4, 7, generator=seeded(3))
    attention = BranchAttention(7)
    weights = attention(base, now)
    found = attention.aggregated(weights, base, now)
    for row in range(4):
        e = np.exp(weights[row].detach().numpy().astype(np.float64))
        a = e / e.sum()
        expected = a[0] * base[row].numpy() + a[1] * now[row].numpy()
        np.testing.assert_allclose(found[row].detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    shares = TeacherShare(3)(torch.randn(5, 3, generator=seeded(4)))
    assert ((shares > 0) & (shares < 1)).all()
