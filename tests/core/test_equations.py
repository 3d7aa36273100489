"""Eq. 1-9 against the slow NumPy version written from the paper."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracle
from cala.core.adapters import MLPAdapter, adapter_inputs
from cala.core.logits import adjusted_logits, cosine_logits, fit_scale, leave_one_out_cosine
from cala.core.losses import LOSSES, Scores, cala_loss, la_loss
from cala.core.metric import WhitenedMetric, fit_whitening
from cala.core.mixing import mix
from cala.core.prototypes import PrototypeTable, class_means, normalise
from cala.core.similarity import similarity

SIZES = st.tuples(
    st.integers(2, 6), st.integers(1, 5), st.integers(2, 7), st.integers(0, 2**31 - 1)
)


def problem(n_base: int, n_novel: int, dim: int, seed: int, per_class: int = 4):
    """Random base and novel features and labels that cover all classes."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_base + n_novel), per_class)
    return rng.normal(size=(len(labels), dim)), labels, rng


def close(fast, slow, tolerance=1e-9):
    np.testing.assert_allclose(np.asarray(fast), slow, rtol=tolerance, atol=tolerance)


@given(SIZES, st.floats(0.4, 0.6))
def test_eq1_mix(size, lam):
    x, _, _ = problem(*size)
    close(mix(torch.tensor(x[0]), torch.tensor(x[1]), lam), oracle.mix(x[0], x[1], lam))


@given(SIZES)
def test_eq2_eq3_prototypes_grow(size):
    n_base, n_novel, dim, _ = size
    x, y, _ = problem(*size)
    slow = oracle.prototypes(x, y, n_base + n_novel)
    close(class_means(torch.tensor(x), torch.tensor(y), n_base + n_novel), slow)
    base = y < n_base
    table = PrototypeTable.empty(dim)
    for part in (base, ~base):
        table = table.extended(normalise(torch.tensor(x[part])), torch.tensor(y[part]))
    grown = oracle.grow(
        oracle.prototypes(x[base], y[base], n_base),
        oracle.prototypes(x[~base], y[~base] - n_base, n_novel),
    )
    close(table.means, grown)


@given(SIZES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_eq4_logits(dtype, tolerance, size):
    n_base, n_novel, _, _ = size
    x, y, _ = problem(*size)
    prototypes = oracle.prototypes(x, y, n_base + n_novel)
    slow = oracle.logits(x, prototypes, 16.0)
    fast = cosine_logits(normalise(torch.tensor(x, dtype=dtype)), torch.tensor(prototypes), 16.0)
    assert fast.dtype == dtype
    close(fast, slow, tolerance)


@given(SIZES, st.floats(-3, 3))
def test_eq5_la_loss(size, alpha):
    n_base, n_novel, _, _ = size
    _, y, rng = problem(*size)
    z = 4 * rng.normal(size=(len(y), n_base + n_novel))
    scores = Scores.of(torch.tensor(z), torch.tensor(y), n_base)
    fast = la_loss(scores, torch.tensor(alpha, dtype=torch.float64))
    close(fast, oracle.la_loss(z, y, n_base, alpha))


@given(SIZES)
def test_eq6_similarity(size):
    n_base, n_novel, _, _ = size
    x, y, _ = problem(*size)
    p = oracle.prototypes(x, y, n_base + n_novel)
    fast = similarity(torch.tensor(p[n_base:]), torch.tensor(p[:n_base]))
    close(fast, oracle.similarity(p[n_base:], p[:n_base]))


@given(SIZES, st.sampled_from(["raw", "sorted", "softmax"]), st.sampled_from([1.0, 16.0]))
def test_eq7_adapter(size, kind, tau):
    n_base, n_novel, _, seed = size
    _, _, rng = problem(*size)
    s = rng.uniform(-1, 1, size=(n_novel, n_base))
    close(adapter_inputs(torch.tensor(s), kind, tau), oracle.inputs(s, kind, tau))

    adapter = MLPAdapter(
        n_base, generator=torch.Generator().manual_seed(seed), inputs=kind, tau=tau
    ).double()
    torch.nn.init.normal_(adapter.layers[-1].weight, generator=torch.Generator().manual_seed(1))
    linear = [layer for layer in adapter.layers if isinstance(layer, torch.nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == [
        (n_base, 64),
        (64, 64),
        (64, 1),
    ]
    weights = [layer.weight.detach().numpy() for layer in linear]
    biases = [layer.bias.detach().numpy() for layer in linear]
    slow = oracle.mlp(oracle.inputs(s, kind, tau), weights, biases)
    close(adapter.score(adapter_inputs(torch.tensor(s), kind, tau)).detach(), slow)


@given(SIZES, st.floats(0, 100), st.floats(-2, 2))
def test_eq8_adjusted_logits(size, gamma, delta):
    n_base, n_novel, _, _ = size
    _, y, rng = problem(*size)
    z = rng.normal(size=(len(y), n_base + n_novel))
    beta = rng.normal(size=n_novel)
    fast = adjusted_logits(torch.tensor(z), n_base, torch.tensor(beta), gamma, delta)
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
    scores = Scores.of(torch.tensor(z), torch.tensor(y), n_base)
    fast = cala_loss(
        scores, torch.tensor(beta), torch.tensor(s), gamma=10.0, kind=kind, rho=rho, mu=mu
    )
    z_hat = oracle.adjusted(z, n_base, beta, 10.0)
    close(fast, oracle.cala_loss(z_hat, y, beta, s, kind, rho, mu))


def test_eq9_literal_has_no_minimum_and_balanced_has_one():
    """The printed regulariser pulls β down without end; balanced queries stop it."""
    _, y, rng = problem(3, 4, 5, seed=0)
    z = torch.tensor(4 * rng.normal(size=(len(y), 7)))
    scores, s = Scores.of(z, torch.tensor(y), 3), torch.zeros(4, 3, dtype=torch.float64)

    def at(value: float, kind: str) -> float:
        beta = torch.full((4,), value, dtype=torch.float64)
        return float(cala_loss(scores, beta, s, gamma=1.0, kind=kind))

    assert at(-1e6, "literal") < at(-1e4, "literal") < at(-1e2, "literal")
    assert at(0.0, "balanced") < min(at(-1e2, "balanced"), at(1e2, "balanced"))


@pytest.mark.parametrize("kind", LOSSES)
def test_losses_pass_a_gradient_check(kind):
    _, y, rng = problem(3, 2, 5, seed=1)
    z = torch.tensor(rng.normal(size=(len(y), 5)))
    scores, s = Scores.of(z, torch.tensor(y), 3), torch.tensor(rng.uniform(size=(2, 3)))
    beta = torch.zeros(2, dtype=torch.float64, requires_grad=True)

    def loss(b):
        return cala_loss(scores, b, s, gamma=10.0, kind=kind, rho=0.5, mu=0.3)

    assert torch.autograd.gradcheck(loss, (beta,))


def test_eq10_eq11_fisher_consistency():
    """Eq. 11 is Eq. 10 with η=1 on adjusted logits, and it falls as the novel logit rises."""
    rng = np.random.default_rng(0)
    z, beta, gamma = torch.tensor(rng.normal(size=6)), torch.tensor([0.3, -0.1]), 10.0
    adjusted = adjusted_logits(z[None], 4, beta, gamma)[0]
    j = 5
    eq10 = -adjusted.log_softmax(0)[j]
    others = torch.cat([adjusted[:j], adjusted[j + 1 :]])
    eq11 = torch.log1p((others - adjusted[j]).exp().sum())
    close(eq10, float(eq11))
    losses = []
    for rise in (0.0, 0.5, 1.0, 5.0):
        raised = torch.cat([beta[:1], beta[1:] + rise])
        losses.append(float(-adjusted_logits(z[None], 4, raised, gamma)[0].log_softmax(0)[j]))
    assert losses == sorted(losses, reverse=True)
    # The minimiser of the expected loss restores the true posterior: argmax-consistent.
    posterior = torch.tensor(rng.dirichlet(np.ones(6)))
    free = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS([free], max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        solver.zero_grad()
        loss = -(posterior * free.log_softmax(0)).sum()
        loss.backward()
        return loss

    solver.step(closure)
    close(free.detach().softmax(0), posterior.numpy(), 1e-4)


@given(SIZES, st.sampled_from([0.5, 2.0, 8.0]))
def test_whitened_metric(size, shrinkage):
    x, y, _ = problem(*size)
    metric = WhitenedMetric(*fit_whitening(torch.tensor(x), torch.tensor(y), shrinkage))
    mean, matrix = oracle.fit_whitening(x, y, shrinkage)
    close(metric.mean, mean)
    close(metric.matrix @ metric.matrix.T, matrix @ matrix.T, 1e-6)
    fast, slow = metric(torch.tensor(x)), oracle.whiten(x, mean, matrix)
    close(fast @ fast.T, slow @ slow.T, 1e-6)  # roots differ by a rotation: cosines do not


@given(SIZES)
def test_automatic_shrinkage_follows_rows_per_dimension(size):
    x, y, _ = problem(*size)
    n_classes, dim = int(y.max()) + 1, x.shape[1]
    rule = 0.5 + 3 * np.sqrt(dim / (len(x) - n_classes))
    auto, given = (
        fit_whitening(torch.tensor(x), torch.tensor(y), shrinkage) for shrinkage in ("auto", rule)
    )
    assert torch.equal(auto[1], given[1])


def test_whitening_of_single_images_only_centres():
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    metric = WhitenedMetric(*fit_whitening(x, torch.arange(4)))
    assert torch.equal(metric.matrix, torch.eye(3, dtype=torch.float64))
    assert metric(x).isfinite().all()


@given(SIZES)
def test_tightness_needs_no_shots(size):
    n_base, _, dim, _ = size
    x, y, _ = problem(*size)
    unit = normalise(torch.tensor(x))
    table = PrototypeTable.empty(dim).extended(unit, torch.tensor(y))
    for c in range(n_base):
        close(table.tightness[c], oracle.tightness(x[y == c]))
    single = PrototypeTable.empty(dim).extended(unit[:1], torch.tensor([0]))
    assert single.tightness.isnan().all()


@given(SIZES, st.floats(1, 50))
def test_leave_one_out_and_scale(size, scale):
    n_base, _, dim, _ = size
    x, y, _ = problem(*size)
    x, y = x[y < n_base], y[y < n_base]
    unit, own = normalise(torch.tensor(x)), torch.tensor(y)
    table = PrototypeTable.empty(dim).extended(unit, own)
    cosines = leave_one_out_cosine(cosine_logits(unit, table.means, 1.0), table, own)
    fast = torch.nn.functional.cross_entropy(scale * cosines, own)
    close(fast, oracle.fit_scale_loss(x, y, n_base, scale), 1e-7)
    best = fit_scale(cosines, own)
    at_best = oracle.fit_scale_loss(x, y, n_base, best)
    for other in (1.0, best / 1.1, best * 1.1, 200.0):
        if 1 <= other <= 200:
            assert at_best <= oracle.fit_scale_loss(x, y, n_base, other) + 1e-6


def test_leave_one_out_leaves_strangers_alone():
    x, y, _ = problem(3, 1, 5, seed=0)
    unit, own = normalise(torch.tensor(x)), torch.tensor(y)
    table = PrototypeTable.empty(5).extended(unit, own)
    cosines = cosine_logits(unit, table.means, 1.0)
    none = torch.full_like(own, -1)
    assert torch.equal(leave_one_out_cosine(cosines, table, none), cosines)
    alone = PrototypeTable.empty(5).extended(unit[:2], torch.tensor([0, 1]))
    cosines = cosine_logits(unit[:2], alone.means, 1.0)
    left = leave_one_out_cosine(cosines, alone, torch.tensor([0, 1]))
    assert left.diagonal().tolist() == [0.0, 0.0]
    assert fit_scale(left[:0], own[:0]) == 16.0
