"""Eq. 1-9, as they run, against the slow NumPy version written from the paper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

import oracle
from cala.core.adapters import MLPAdapter, ScalarAdapter, adapter_inputs
from cala.core.cala import (
    LOSSES,
    AdapterLoss,
    ClassContext,
    Episode,
    PrototypeTable,
    Scores,
    adjusted_logits,
    cosine_logits,
    mix,
    normalise,
    novel_shift,
    similarity,
)
from cala.core.calibration import fit_scale, leave_one_out
from cala.core.metric import WhitenedMetric, fit_whitening

SIZES = st.tuples(
    st.integers(2, 6), st.integers(1, 5), st.integers(2, 7), st.integers(0, 2**31 - 1)
)


def problem(n_base: int, n_novel: int, dim: int, seed: int, per_class: int = 4):
    """Random base and novel features and labels that cover all classes."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_base + n_novel), per_class)
    return rng.normal(size=(len(labels), dim)), labels, rng


def table_of(unit, columns) -> PrototypeTable:
    return PrototypeTable.of([(unit, columns)], int(columns.max()) + 1, unit.shape[1])


def episode_of(z, y, n_base, s) -> Episode:
    """Logits z (Q, B + F) of queries y (Q,), and classes with similarities s (F, B)."""
    context = ClassContext(s, np.full(len(s), 0.5), np.full(len(s), 5.0))
    return Episode(context, Scores.of(z, y, n_base))


def cross_entropy(z, y) -> float:
    return float(-log_softmax(z, axis=1)[np.arange(len(y)), y].mean())


def close(fast, slow, tolerance=1e-9):
    np.testing.assert_allclose(fast, slow, rtol=tolerance, atol=tolerance)


@given(SIZES, st.floats(0.4, 0.6))
def test_eq1_mix(size, lam):
    x, _, _ = problem(*size)
    close(mix(x[0], x[1], lam), oracle.mix(x[0], x[1], lam))


@given(SIZES)
def test_eq2_eq3_prototypes_grow(size):
    n_base, n_novel, dim, _ = size
    x, y, _ = problem(*size)
    slow = oracle.prototypes(x, y, n_base + n_novel)
    close(table_of(normalise(x), y).means, slow)
    base = y < n_base
    table = PrototypeTable.empty(0, dim)
    for part in (base, ~base):
        table = table.extended(normalise(x[part]), y[part])
    grown = oracle.grow(
        oracle.prototypes(x[base], y[base], n_base),
        oracle.prototypes(x[~base], y[~base] - n_base, n_novel),
    )
    close(table.means, grown)


@given(SIZES, st.randoms(use_true_random=False))
def test_eq2_shots_in_any_order_and_in_parts_make_the_same_table(size, random):
    x, y, _ = problem(*size)
    whole = table_of(normalise(x), y)
    order = list(range(len(y)))
    random.shuffle(order)
    parts = [(normalise(x[part]), y[part]) for part in np.array_split(order, 3)]
    found = PrototypeTable.of(parts, len(whole), x.shape[1])
    close(found.sums, whole.sums)
    assert np.array_equal(found.counts, whole.counts)


@given(SIZES)
def test_eq3_a_longer_table_leaves_the_shorter_one_alone(size):
    n_base, n_novel, _, _ = size
    x, y, _ = problem(*size)
    base = y < n_base
    table = table_of(normalise(x[base]), y[base])
    before = table.sums.copy(), table.counts.copy()
    longer = table.extended(normalise(x[~base]), y[~base])
    folded = longer.extended(normalise(x[base]), y[base])
    assert len(longer) == len(folded) == n_base + n_novel
    assert np.array_equal(table.sums, before[0])
    assert np.array_equal(table.counts, before[1])
    assert np.array_equal(longer.sums[:n_base], before[0])
    close(folded.sums[:n_base], 2 * before[0])


@given(SIZES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 1e-4)])
def test_eq4_logits(dtype, tolerance, size):
    n_base, n_novel, _, _ = size
    x, y, _ = problem(*size)
    prototypes = oracle.prototypes(x, y, n_base + n_novel)
    slow = oracle.logits(x, prototypes, 16.0)
    unit, weights = (normalise(rows.astype(dtype)) for rows in (x, prototypes))
    fast = 16.0 * cosine_logits(unit, weights)
    assert fast.dtype == dtype
    close(fast, slow, tolerance)


@given(SIZES, st.floats(-3, 3))
def test_eq5_la_is_the_loss_with_one_beta_for_all(size, alpha):
    n_base, n_novel, _, _ = size
    _, y, rng = problem(*size)
    z = 4 * rng.normal(size=(len(y), n_base + n_novel))
    episode = episode_of(z, y, n_base, np.zeros((n_novel, n_base)))
    adapter = ScalarAdapter()
    adapter.parameters = np.array([alpha])
    fast, _ = AdapterLoss(gamma=1.0)(episode, adapter(episode.context))
    close(fast, oracle.la_loss(z, y, n_base, alpha))


@given(SIZES)
def test_eq6_similarity(size):
    n_base, n_novel, _, _ = size
    x, y, _ = problem(*size)
    p = oracle.prototypes(x, y, n_base + n_novel)
    slow = oracle.similarity(p[n_base:], p[:n_base])
    close(similarity(p[n_base:], normalise(p[:n_base])), slow)
    novel = np.arange(n_base, n_base + n_novel)
    table = table_of(normalise(x), y).at(novel)
    context = ClassContext.of(table.means, table, normalise(p[:n_base]))
    close(context.similarity, slow)
    assert context.shots.tolist() == [4.0] * n_novel


@given(SIZES, st.sampled_from(["raw", "sorted", "softmax"]), st.sampled_from([1.0, 16.0]))
def test_eq7_adapter(size, kind, tau):
    n_base, n_novel, _, seed = size
    _, _, rng = problem(*size)
    s = rng.uniform(-1, 1, size=(n_novel, n_base))
    close(adapter_inputs(s, kind, tau), oracle.inputs(s, kind, tau))

    adapter = MLPAdapter(
        n_base, rng=np.random.default_rng(seed), inputs=kind, tau=tau, zero_start=False
    )
    parts = adapter.arrays()
    weights, biases = (
        [parts[f"layers.{layer}.{part}"] for layer in (0, 2, 4)] for part in ("weight", "bias")
    )
    assert [w.shape for w in weights] == [(64, n_base), (64, 64), (1, 64)]
    context = ClassContext(s, np.full(n_novel, np.nan), np.ones(n_novel))
    close(adapter(context), oracle.mlp(oracle.inputs(s, kind, tau), weights, biases))


def test_eq7_training_starts_from_the_plain_classifier():
    adapter = MLPAdapter(3, rng=np.random.default_rng(0))
    context = ClassContext(np.random.default_rng(1).normal(size=(4, 3)), np.ones(4), np.ones(4))
    assert adapter(context).tolist() == [0.0] * 4
    first = adapter.arrays()["layers.0.weight"]
    assert 0 < np.abs(first).max() <= 1 / np.sqrt(3)


@given(SIZES, st.floats(0, 100), st.floats(-2, 2))
def test_eq8_adjusted_logits(size, gamma, delta):
    n_base, n_novel, _, _ = size
    _, y, rng = problem(*size)
    z = rng.normal(size=(len(y), n_base + n_novel))
    beta = rng.normal(size=n_novel)
    shift = novel_shift(np.append(np.zeros(n_base), beta), n_base, gamma, delta)
    fast = adjusted_logits(z.copy(), shift)
    close(fast, oracle.adjusted(z, n_base, beta, gamma, delta))


@given(SIZES, st.sampled_from(LOSSES), st.floats(0, 2), st.floats(-1, 1))
def test_eq9_cala_loss(size, kind, rho, mu):
    n_base, n_novel, _, _ = size
    _, y, rng = problem(*size)
    keep = rng.random(len(y)) < 0.8  # unequal numbers of queries, classes without any
    keep[:1] = True
    y = y[keep]
    z = 4 * rng.normal(size=(len(y), n_base + n_novel))
    beta, s = rng.normal(size=n_novel), rng.uniform(-1, 1, size=(n_novel, n_base))
    fast, _ = AdapterLoss(10.0, kind, rho, mu)(episode_of(z, y, n_base, s), beta)
    z_hat = oracle.adjusted(z, n_base, beta, 10.0)
    close(fast, oracle.cala_loss(z_hat, y, beta, s, kind, rho, mu))


def test_eq9_literal_has_no_minimum_and_balanced_has_one():
    """The printed regulariser pulls β down without end; balanced queries stop it."""
    _, y, rng = problem(3, 4, 5, seed=0)
    episode = episode_of(4 * rng.normal(size=(len(y), 7)), y, 3, np.zeros((4, 3)))

    def at(value: float, kind: str) -> float:
        return AdapterLoss(gamma=1.0, kind=kind)(episode, np.full(4, value))[0]

    assert at(-1e6, "literal") < at(-1e4, "literal") < at(-1e2, "literal")
    assert at(0.0, "balanced") < min(at(-1e2, "balanced"), at(1e2, "balanced"))


@given(SIZES, st.floats(0.5, 20), st.floats(0, 2), st.floats(-1, 1))
@pytest.mark.parametrize("kind", LOSSES)
def test_eq9_gradients_are_those_of_finite_differences(kind, size, gamma, rho, mu):
    n_base, n_novel, _, _ = size
    _, y, rng = problem(*size)
    y = y[rng.random(len(y)) < 0.8]
    z = 2 * rng.normal(size=(len(y), n_base + n_novel))
    episode = episode_of(z, y, n_base, rng.uniform(size=(n_novel, n_base)))
    loss, beta = AdapterLoss(gamma, kind, rho, mu), rng.normal(size=n_novel) / gamma
    _, by_beta = loss(episode, beta)
    step = 1e-6
    slow = [
        (loss(episode, beta + step * e)[0] - loss(episode, beta - step * e)[0]) / (2 * step)
        for e in np.eye(n_novel)
    ]
    close(by_beta, slow, 1e-6)


def test_eq10_eq11_fisher_consistency():
    """Eq. 11 is Eq. 10 with η=1 on adjusted logits, and it falls as the novel logit rises."""
    rng = np.random.default_rng(0)
    z, beta, gamma = rng.normal(size=6), np.array([0, 0, 0, 0, 0.3, -0.1]), 10.0
    j = 5

    def adjusted(beta):
        return adjusted_logits(z.copy()[None], novel_shift(beta, 4, gamma))[0]

    now = adjusted(beta)
    eq11 = np.log1p(np.exp(np.delete(now, j) - now[j]).sum())
    close(-log_softmax(now)[j], eq11)
    losses = []
    for rise in (0.0, 0.5, 1.0, 5.0):
        raised = beta.copy()
        raised[j] += rise
        losses.append(-log_softmax(adjusted(raised))[j])
    assert losses == sorted(losses, reverse=True)
    # The minimiser of the expected loss restores the true posterior: argmax-consistent.
    posterior = rng.dirichlet(np.ones(6))
    found = minimize(lambda free: -(posterior @ log_softmax(free)), np.zeros(6), tol=1e-12)
    close(softmax(found.x), posterior, 1e-4)


@given(SIZES, st.sampled_from([0.5, 2.0, 8.0]))
def test_whitened_metric(size, shrinkage):
    x, y, _ = problem(*size)
    metric = WhitenedMetric(*fit_whitening(x, y, shrinkage))
    mean, matrix = oracle.fit_whitening(x, y, shrinkage)
    close(metric.mean, mean)
    close(metric.matrix @ metric.matrix.T, matrix @ matrix.T, 1e-6)
    fast, slow = metric(x), oracle.whiten(x, mean, matrix)
    close(fast @ fast.T, slow @ slow.T, 1e-6)  # roots differ by a rotation: cosines do not


@given(SIZES)
def test_whitening_of_some_rows_is_that_of_these_alone(size):
    x, y, rng = problem(*size)
    rows = np.flatnonzero(rng.random(len(y)) < 0.7)
    rows = rows if len(rows) > 1 else np.arange(2)
    for some, alone in zip(
        fit_whitening(x, y, 0.5, rows), fit_whitening(x[rows], y[rows], 0.5), strict=True
    ):
        close(some, alone)


@given(SIZES)
def test_automatic_shrinkage_follows_rows_per_dimension(size):
    x, y, _ = problem(*size)
    n_classes, dim = int(y.max()) + 1, x.shape[1]
    rule = 0.5 + 3 * np.sqrt(dim / (len(x) - n_classes))
    auto, given = (fit_whitening(x, y, shrinkage) for shrinkage in ("auto", rule))
    assert np.array_equal(auto[1], given[1])


def test_whitening_of_single_images_only_centres():
    x = np.random.default_rng(0).normal(size=(4, 3))
    metric = WhitenedMetric(*fit_whitening(x, np.arange(4)))
    assert np.array_equal(metric.matrix, np.eye(3))
    assert np.isfinite(metric(x)).all()


@given(SIZES)
def test_tightness_needs_no_shots(size):
    n_base, _, _, _ = size
    x, y, _ = problem(*size)
    unit = normalise(x)
    table = table_of(unit, y)
    for c in range(n_base):
        close(table.tightness[c], oracle.tightness(x[y == c]))
    assert np.isnan(table_of(unit[:1], y[:1]).tightness).all()


@given(SIZES)
def test_leave_one_out_and_scale(size):
    n_base, _, _, _ = size
    x, y, _ = problem(*size)
    x, own = x[y < n_base], y[y < n_base]
    unit = normalise(x)
    table = table_of(unit, own)
    cosines = leave_one_out(cosine_logits(unit, normalise(table.means)), table, own)
    best = fit_scale(cosines, own)
    at_best = oracle.fit_scale_loss(x, own, n_base, best)
    for other in (1.0, best / 1.1, best * 1.1, 200.0):
        if 1 <= other <= 200:
            assert at_best <= oracle.fit_scale_loss(x, own, n_base, other) + 1e-5


def test_leave_one_out_leaves_strangers_alone():
    x, own, _ = problem(3, 1, 5, seed=0)
    unit = normalise(x)
    table = table_of(unit, own)
    cosines = cosine_logits(unit, normalise(table.means))
    assert np.array_equal(leave_one_out(cosines, table, np.full_like(own, -1)), cosines)
    alone = table_of(unit[:2], np.array([0, 1]))
    left = leave_one_out(cosine_logits(unit[:2], alone.means), alone, np.array([0, 1]))
    assert left.diagonal().tolist() == [0.0, 0.0]
    assert fit_scale(left[:0], own[:0]) == 16.0
