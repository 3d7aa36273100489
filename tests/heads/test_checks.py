"""Checks at the door: only directions count, in every number type."""

from __future__ import annotations

import numpy as np
import pytest

from cala.core.cala import normalise
from cala.core.fakes import FakePool
from cala.heads.checks import check_fakes, check_features, check_operating_point, is_auto, is_number
from cala.registry import check_choice
from refusals import refused

ROWS = np.random.default_rng(0).normal(size=(5, 4))
PAIRS = np.array([[0, 1], [1, 2]])


@pytest.mark.parametrize("size", [1e300, 1e-300, 1.0])
def test_sizes_beyond_a_narrower_type_are_no_infinities(size):
    found = check_features(ROWS * size, dtype=np.float32)
    assert found.dtype == np.float32
    np.testing.assert_allclose(normalise(found), normalise(ROWS), rtol=1e-5, atol=1e-6)
    pool = check_fakes(FakePool((ROWS[:4] * size).reshape(2, 2, 4), PAIRS), 4)
    single = pool.features.astype(np.float32)
    assert np.isfinite(single).all()
    assert (np.abs(single).max(2) > 0).all()


def test_ordinary_fakes_are_not_touched():
    pool = FakePool(ROWS[:4].reshape(2, 2, 4), PAIRS)
    assert check_fakes(pool, 4).features is pool.features


def test_numbers_and_auto():
    assert [is_number(x) for x in (1, 1.5, True, "1", None, np.ones(1))] == [
        True, True, False, False, False, False,
    ]  # fmt: skip
    assert is_auto("auto")
    assert not is_auto(np.ones(2))


def test_one_operating_point_at_a_time():
    check_operating_point("accuracy", 0.1)
    check_operating_point("harmonic")
    check_operating_point("accuracy", delta=2)
    with refused("'harmonic'", "0.1", code="two_operating_points"):
        check_operating_point("harmonic", 0.1)


@pytest.mark.parametrize("name", [["red"], {"red": 1}, np.ones(2), 3])
def test_what_is_no_name_is_unknown(name):
    with refused("colour", repr(name), field="colour", code="unknown_name"):
        check_choice("colour", name, ("red", "blue"))
    with refused("colour", repr(name), field="colour", code="unknown_name"):
        check_choice("colour", name, {"red": 1})
