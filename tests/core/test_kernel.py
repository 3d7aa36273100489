"""Kernel features by hand, and centres from all rows."""

from __future__ import annotations

import math

import pytest
import torch

from cala.core.kernel import draw_centres, gaussian_features, median_distance


def test_values_by_hand():
    rows = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    centres = torch.tensor([[0.0, 0.0], [0.0, 4.0], [3.0, 4.0]])
    expected = [
        [1.0, math.exp(-16 / 8), math.exp(-25 / 8)],
        [math.exp(-25 / 8), math.exp(-9 / 8), 1.0],
    ]
    found = gaussian_features(rows, centres, sigma=2.0)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_centres_come_from_all_rows_without_repeats():
    drawn = draw_centres(10_000, 500, torch.Generator().manual_seed(0))
    assert len(drawn.unique()) == 500
    assert drawn.max() > 9_900
    assert abs(float(drawn.double().mean()) - 5_000) < 500
    assert torch.equal(drawn, draw_centres(10_000, 500, torch.Generator().manual_seed(0)))
    assert sorted(draw_centres(3, 500, torch.Generator()).tolist()) == [0, 1, 2]


def test_the_median_distance():
    line = torch.tensor([[0.0], [1.0], [3.0]])  # distances 1, 2 and 3
    assert median_distance(line, torch.Generator()) == pytest.approx(2.0)
    assert median_distance(torch.ones(4, 2), torch.Generator()) == 1.0
    assert median_distance(torch.ones(1, 2), torch.Generator()) == 1.0
