"""Compressed logits say what the full ones do, for any shift of the novel columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, logsumexp

from cala.core.cala import AdapterLoss, ClassContext, Episode, Scores

N_BASE, N_NOVEL = 5, 7


def drawn(size: float, dtype, seed: int = 0):
    """Logits (60, 12), the queries' columns, and a shift of the novel ones."""
    rng = np.random.default_rng(seed)
    logits = (size * rng.normal(size=(60, N_BASE + N_NOVEL))).astype(dtype)
    columns = rng.integers(N_BASE + N_NOVEL, size=60)
    return logits, columns, (3 * rng.normal(size=N_NOVEL)).astype(dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-4), (np.float64, 1e-9)])
@given(st.sampled_from([0.1, 5.0, 20.0]), st.integers(0, 999))
def test_they_are_those_of_the_full_logits(dtype, tolerance, size, seed):
    logits, columns, shift = drawn(size, dtype, seed)
    scores = Scores.of(logits, columns, N_BASE)
    full = logits.astype(np.float64)
    full[:, N_BASE:] += shift
    rows = np.arange(len(columns))
    entropy, factor, rest = scores.cross_entropy(shift)
    expected = -log_softmax(full, axis=1)[rows, columns]
    assert entropy.dtype == dtype
    np.testing.assert_allclose(entropy, expected, rtol=tolerance, atol=tolerance * 10)
    novel = scores.powers * factor * rest[:, None]
    probabilities = np.exp(log_softmax(full, axis=1))[:, N_BASE:]
    np.testing.assert_allclose(novel, probabilities, rtol=tolerance * 10, atol=1e-6)
    best, column = scores.best(shift)
    np.testing.assert_allclose(best, full[:, N_BASE:].max(1), rtol=tolerance, atol=tolerance * 10)
    assert np.array_equal(column, full[:, N_BASE:].argmax(1))
    base = logits[:, :N_BASE]
    np.testing.assert_allclose(scores.base_lse, logsumexp(base, axis=1), rtol=tolerance)
    assert np.array_equal(scores.base_max, base.max(1))
    assert np.array_equal(scores.base_right, base.argmax(1) == columns)
    assert np.array_equal(scores.true, logits[rows, columns])
    assert np.array_equal(scores.own, np.where(columns < N_BASE, -1, columns - N_BASE))


def test_every_class_weighs_the_same():
    logits, columns, _ = drawn(1.0, np.float64)
    scores = Scores.of(logits, columns, N_BASE)
    shares = np.bincount(columns, scores.weight)
    np.testing.assert_allclose(shares[shares > 0], 1 / len(np.unique(columns)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits_and_shifts_far_apart_stay_finite(dtype):
    logits, columns, _ = drawn(500.0, dtype)
    scores = Scores.of(logits, columns, N_BASE)
    context = ClassContext(np.zeros((N_NOVEL, N_BASE)), np.zeros(N_NOVEL), np.ones(N_NOVEL))
    shift = np.array([-4e3, 0, 0, 0, 0, 0, 4e3], dtype)
    loss, by_beta = AdapterLoss(gamma=1.0)(Episode(context, scores), shift)
    assert np.isfinite(loss)
    assert np.isfinite(by_beta).all()
    best, _ = scores.best(shift)
    assert np.isfinite(best).all()
