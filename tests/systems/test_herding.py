"""What sessions that remember work with: herding, distillation, branches that are weighed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cala.core.cala import normalise
from cala.systems.bidist import aggregated, branch_attention, small_network, teacher_share
from cala.systems.common.learner import distillation
from cala.systems.icarl import EXEMPLARS, herd, herded


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
    unit = normalise(np.random.default_rng(seed).normal(size=(n, 4)))
    found = herd(unit, count)
    assert found.tolist() == slow_herding(unit, count)
    assert len(set(found.tolist())) == min(n, count)


def test_exemplars_are_herded_class_by_class():
    rng = np.random.default_rng(0)
    unit, columns = normalise(rng.normal(size=(80, 4))), rng.integers(0, 3, 80)
    found = herded(unit, columns, 1, 3)
    assert columns[found].tolist() == [1] * EXEMPLARS + [2] * EXEMPLARS
    mine = np.flatnonzero(columns == 1)
    assert found[:EXEMPLARS].tolist() == mine[slow_herding(unit[mine], EXEMPLARS)].tolist()


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


def test_branches_are_weighed():
    base, now = torch.randn(2, 4, 7, generator=seeded(3))
    weights = branch_attention(small_network(2 * 7), base, now)
    found = aggregated(weights, base, now)
    for row in range(4):
        e = np.exp(weights[row].detach().numpy().astype(np.float64))
        a = e / e.sum()
        expected = a[0] * base[row].numpy() + a[1] * now[row].numpy()
        np.testing.assert_allclose(found[row].detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    shares = teacher_share(small_network(3), torch.randn(5, 3, generator=seeded(4)))
    assert shares.shape == (5,)
    assert ((shares > 0) & (shares < 1)).all()
