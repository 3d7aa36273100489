"""FACT's masks and fusion, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax

from cala.systems.fact import (
    NOTHING,
    draw_guests,
    fused_logits,
    mixed_targets,
    nearest_virtual,
    second_best,
    through_virtual,
    virtual_prototypes,
)

LOGITS = torch.tensor([[5.0, 1.0, 2.0, 3.0, 4.0], [0.0, 6.0, 9.0, 1.0, 2.0]])  # 2 base, 3 virtual


@pytest.mark.parametrize(("n_base", "count"), [(60, 40), (2, 3), (9, 1)])
def test_guests(n_base, count):
    torch.manual_seed(0)
    allowed = draw_guests(n_base, count)
    assert allowed.shape == (n_base, count)
    assert allowed.any(1).all()
    lonely = allowed.all(1)
    assert (allowed[~lonely].sum(0) <= 3).all()
    if n_base == 60:
        assert (allowed[~lonely].sum(0) == 3).all()


def test_the_mask_hides_the_true_class_and_foreign_virtual_ones():
    allowed = torch.tensor([[True, True, False], [False, True, True]])
    masked, target = second_best(LOGITS, torch.tensor([0, 1]), allowed)
    assert target.tolist() == [3, 4]  # 4.0 and 9.0 are larger, and not open to these classes
    assert masked[0].tolist() == [NOTHING, 1.0, 2.0, 3.0, 4.0]
    assert masked[1].tolist() == [0.0, NOTHING, 9.0, 1.0, 2.0]


def test_targets_of_mixed_images():
    virtual, masked, known = mixed_targets(LOGITS, 2)
    assert virtual.tolist() == [4, 2]
    assert masked[0].tolist() == [5.0, 1.0, 2.0, 3.0, NOTHING]
    assert masked[1].tolist() == [0.0, 6.0, NOTHING, 1.0, 2.0]
    assert known.tolist() == [0, 1]


def test_by_way_of_the_nearest_virtual_prototypes():
    rng = np.random.default_rng(0)
    unit, virtual, weights = (
        x / np.linalg.norm(x, axis=1, keepdims=True)
        for x in (rng.normal(size=(n, 4)) for n in (3, 6, 5))
    )
    expected = np.zeros((3, 5))
    for i, image in enumerate(unit):
        nearest = np.argsort(virtual @ image)[::-1][:2]
        for c, weight in enumerate(weights):
            expected[i, c] = sum((virtual[v] @ image) * (virtual[v] @ weight) for v in nearest)
    near = nearest_virtual(unit, virtual, nearest=2)
    np.testing.assert_allclose(through_virtual(near, virtual, weights), expected)


def test_fusion_is_a_probability():
    through, direct = np.random.default_rng(0).normal(size=(2, 4, 5))
    found = softmax(fused_logits(through, direct), axis=1)
    np.testing.assert_allclose(
        found, 0.1 * softmax(through, axis=1) + 0.9 * softmax(direct, axis=1)
    )
    np.testing.assert_allclose(fused_logits(through, direct, eta=0.0), direct)


def test_virtual_prototypes():
    torch.manual_seed(0)
    rows = virtual_prototypes(3, 2, 8)
    torch.testing.assert_close(rows @ rows.T, torch.eye(2))
    many = virtual_prototypes(60, 40, 64)
    torch.testing.assert_close(many.norm(dim=1), torch.ones(40))
    assert (many @ many.T - torch.eye(40)).abs().max() < 0.7
