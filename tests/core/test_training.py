"""Algorithm 1: adapters, their gradients, and what training keeps of them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from cala.core import cala as module
from cala.core.adapters import (
    ADAPTER_KINDS,
    OPTIMISERS,
    MLPAdapter,
    ScalarAdapter,
    SummaryAdapter,
    adam,
)
from cala.core.cala import AdapterLoss, ClassContext, mean_loss, train_by_steps, train_convex
from cala.errors import InputError
from cala.heads.adapter_training import AdapterRecipe
from core.training_problem import EPISODES, HELDOUT, N_BASE

ALL = [e.context for e in EPISODES]


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def mlp(seed: int = 0) -> MLPAdapter:
    return MLPAdapter(N_BASE, rng=seeded(seed))


def summary(*contexts: ClassContext) -> SummaryAdapter:
    adapter = SummaryAdapter(N_BASE)
    adapter.calibrate(contexts or ALL)
    return adapter


def train(adapter, heldout=HELDOUT, rng=None, *, lr=1e-3, optimiser="adam", **options):
    train_by_steps(
        adapter,
        EPISODES,
        heldout,
        AdapterLoss(),
        rng or seeded(1),
        step=OPTIMISERS[optimiser](lr),
        **options,
    )
    return adapter


@pytest.mark.parametrize("kind", list(ADAPTER_KINDS))
@given(st.integers(0, 999))
def test_gradients_are_those_of_finite_differences(kind, seed):
    rng = seeded(seed)
    recipe = AdapterRecipe(adapter=kind, hidden=(7, 5), zero_start=False)
    adapter, context = recipe.make(N_BASE, rng), EPISODES[seed % 8].context
    adapter.calibrate(ALL)
    adapter.parameters = adapter.parameters + rng.normal(size=adapter.parameters.shape)
    by_beta = rng.normal(size=len(context))
    inputs = adapter.inputs(context)
    found = adapter.gradient(inputs, by_beta)
    start, slow = adapter.parameters, []
    for direction in np.eye(len(start)) * 1e-6:
        sides = []
        for side in (1, -1):
            adapter.parameters = start + side * direction
            sides.append(by_beta @ adapter.score(inputs))
        slow.append((sides[0] - sides[1]) / 2e-6)
    np.testing.assert_allclose(found, slow, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", list(ADAPTER_KINDS))
def test_what_an_adapter_has_learned_can_be_stored(kind):
    recipe, found = AdapterRecipe(adapter=kind), []
    for dtype in (np.float64, np.float32):
        contexts = [ClassContext(*(x.astype(dtype) for x in vars(c).values())) for c in ALL]
        adapter = recipe.make(N_BASE, seeded())
        adapter.calibrate(contexts)
        adapter.parameters = adapter.parameters + seeded(1).normal(size=adapter.parameters.shape)
        again = recipe.make(N_BASE, seeded(2))
        again.load({name: value.copy() for name, value in adapter.arrays().items()})
        found.append(adapter(contexts[0]))
        assert found[-1].dtype == dtype
        assert np.array_equal(again(contexts[0]), found[-1])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-4)


LINEAR = [k for k in ADAPTER_KINDS if AdapterRecipe(adapter=k).make(N_BASE, seeded()).linear]


def test_the_kinds_that_are_linear():
    assert {"scalar", "summary"} <= set(LINEAR)
    assert "mlp" not in LINEAR


@pytest.mark.parametrize("kind", LINEAR)
def test_linear_adapters_are_linear_and_end_in_an_offset(kind):
    adapter = AdapterRecipe(adapter=kind).make(N_BASE, seeded())
    adapter.calibrate(ALL)
    inputs = np.concatenate([adapter.inputs(context) for context in ALL])
    p = len(adapter.parameters)

    def at(parameters):
        adapter.parameters = parameters
        return adapter.score(inputs)

    a, b = seeded(1).normal(size=(2, p))
    np.testing.assert_allclose(at(a) + at(b), at(a + b), atol=1e-12)
    assert at(np.eye(p)[-1]).tolist() == [1.0] * len(inputs)


def test_an_adam_step_by_hand():
    lr, step = 0.01, adam(0.01)
    parameters = hand = np.array([1.0, -2.0, 0.5])
    m, v = np.zeros(3), np.zeros(3)
    for t in range(1, 6):
        gradient = np.array([0.3, -4.0, 0.0]) * t + hand
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.999**t)
        parameters = step(gradient, parameters)
        hand = hand - lr * m_hat / (np.sqrt(v_hat) + 1e-8)
        np.testing.assert_allclose(parameters, hand, rtol=1e-12)
    assert np.allclose(adam(0.01)(np.array([5.0, -0.1]), np.zeros(2)), [-0.01, 0.01])


def test_an_sgd_step_by_hand():
    step = OPTIMISERS["sgd"](0.1)
    first = step(np.array([1.0]), np.array([0.0]))
    second = step(np.array([1.0]), first)
    np.testing.assert_allclose([first[0], second[0]], [-0.1, -0.1 - 0.19])


def test_scalar_adapter_finds_the_best_shift():
    adapter = ScalarAdapter()
    loss = AdapterLoss(gamma=1.0)
    train_convex(adapter, EPISODES, [], loss)
    best = mean_loss(adapter, EPISODES, loss)
    found = adapter.parameters[0]
    grid = found + np.linspace(-0.5, 0.5, 201)
    losses = []
    for alpha in grid:
        adapter.parameters = np.array([alpha])
        losses.append(mean_loss(adapter, EPISODES, loss))
    assert best <= min(losses) + 1e-9
    assert grid[np.argmin(losses)] == pytest.approx(found, abs=5e-3)


@pytest.mark.parametrize(("ridge", "rho"), [(0.0, 0.0), (1e-2, 0.0), (1e-3, 0.5)])
def test_train_convex_finds_the_minimum(ridge, rho):
    """Against searches that know no gradient, from there and from afar."""
    loss, some = AdapterLoss(gamma=1.0, rho=rho, mu=0.3), EPISODES[:2]
    adapter = summary()
    train_convex(adapter, some, [], loss, ridges=(ridge,))

    def value(parameters):
        adapter.parameters = parameters
        return mean_loss(adapter, some, loss) + ridge * float(parameters[:-1] @ parameters[:-1])

    found = adapter.parameters
    for start in (found, np.zeros(len(found))):
        searched = minimize(value, start, method="Powell", options={"maxiter": 20})
        assert value(found) <= searched.fun + 1e-6


def test_train_convex_goes_to_the_same_minimum_from_anywhere():
    found = []
    for start in (0.0, 2.0, -3.0):
        adapter = summary()
        adapter.parameters = np.full(len(adapter.parameters), start)
        train_convex(adapter, EPISODES, [], AdapterLoss(gamma=1.0), ridges=(1e-2,))
        found.append(adapter.parameters)
    np.testing.assert_allclose(found[1], found[0], atol=1e-3)
    np.testing.assert_allclose(found[2], found[0], atol=1e-3)


@pytest.mark.parametrize("kind", ["mlp", "summary"])
def test_class_aware_adapters_beat_the_scalar_on_held_out_pairs(kind):
    loss = AdapterLoss(gamma=10.0 if kind == "mlp" else 1.0)
    scalar = ScalarAdapter()
    train_convex(scalar, EPISODES, HELDOUT, AdapterLoss(gamma=1.0))
    if kind == "mlp":
        adapter = train(mlp())
    else:
        adapter = summary()
        train_convex(adapter, EPISODES, HELDOUT, loss, ridges=(1e-4, 1e-2))
    ours = mean_loss(adapter, HELDOUT, loss)
    assert ours < mean_loss(scalar, HELDOUT, AdapterLoss(gamma=1.0))


def watched(monkeypatch):
    """Every loss that pseudo-testing gives, with the parameters it was given to."""
    found = []

    def watch(adapter, episodes, loss):
        value = mean_loss(adapter, episodes, loss)
        found.append((value, adapter.parameters.copy(), episodes))
        return value

    monkeypatch.setattr(module, "mean_loss", watch)
    return found


def test_the_kept_epoch_is_the_best_on_held_out_pairs(monkeypatch):
    seen = watched(monkeypatch)
    adapter = train(mlp(), epochs=6, steps=20, lr=0.05)
    assert len(seen) == 6
    assert all(episodes is HELDOUT for _, _, episodes in seen)
    best = min(seen, key=lambda one: one[0])
    assert np.array_equal(adapter.parameters, best[1])
    assert mean_loss(adapter, HELDOUT, AdapterLoss()) == best[0]


def test_without_held_out_pairs_the_last_epoch_is_kept(monkeypatch):
    seen = watched(monkeypatch)
    first, second = (train(mlp(), [], epochs=epochs).parameters for epochs in (1, 2))
    assert not np.array_equal(first, second)
    assert np.array_equal(second, seen[-1][1])


def test_a_step_follows_the_gradient_of_one_episode():
    """One epoch of one step, by hand."""
    start, loss, rng = mlp(), AdapterLoss(), seeded(5)
    index = seeded(5).integers(len(EPISODES), size=1)[0]
    inputs = start.inputs(EPISODES[index].context)
    _, by_beta = loss(EPISODES[index], start.score(inputs))
    expected = start.parameters - 0.1 * start.gradient(inputs, by_beta)
    adapter = train(mlp(), [], rng, epochs=1, steps=1, lr=0.1, optimiser="sgd")
    np.testing.assert_allclose(adapter.parameters, expected)


@pytest.mark.parametrize("optimiser", list(OPTIMISERS))
def test_training_is_deterministic(optimiser):
    once = partial(train, epochs=2, optimiser=optimiser)
    assert np.array_equal(once(mlp(3)).parameters, once(mlp(3)).parameters)


def test_summary_adapter_imputes_the_tightness_of_a_single_shot():
    c = EPISODES[0].context
    adapter = summary(c)
    adapter.parameters = np.ones(len(adapter.parameters))
    single = ClassContext(c.similarity, np.full_like(c.tightness, np.nan), c.shots)
    average = ClassContext(c.similarity, np.full_like(c.tightness, c.tightness.mean()), c.shots)
    np.testing.assert_allclose(adapter(single), adapter(average))


def test_summary_inputs_by_hand():
    """Top similarities in descending order, mean, tightness, log K, standardised on the fakes."""
    context = ClassContext(
        np.array([[0.1, 0.9, 0.5], [0.7, 0.3, 0.2]]),
        np.array([0.6, 0.2]),
        np.array([5.0, 20.0]),
    )
    adapter = SummaryAdapter(3, top=2)
    columns = np.array([[0.9, 0.5, 0.5, 0.6, np.log(5)], [0.7, 0.3, 0.4, 0.2, np.log(20)]])
    np.testing.assert_allclose(adapter.inputs(context), columns)
    adapter.calibrate([context])
    standard = (columns - columns.mean(0)) / columns.std(0)
    np.testing.assert_allclose(adapter.inputs(context), standard)
    constant = ClassContext(context.similarity, context.tightness, np.full(2, 5.0))
    adapter.calibrate([constant])
    assert (adapter.inputs(constant)[:, -1] == 0).all(), "a constant input is no input"


@pytest.mark.parametrize("kind", list(ADAPTER_KINDS))
def test_inputs_stay_within_the_range_of_the_training_classes(kind):
    """Nothing was learned beyond it: a class out there gets what the nearest one would."""
    adapter, rng = AdapterRecipe(adapter=kind).make(N_BASE, seeded()), seeded(1)
    adapter.calibrate(ALL)
    adapter.parameters = adapter.parameters + rng.normal(size=adapter.parameters.shape)
    known = np.concatenate([adapter.read(context) for context in ALL])
    far = ClassContext(np.full((2, N_BASE), 9.0), np.full(2, -5.0), np.array([1.0, 1e6]))
    expected = adapter.score(adapter.read(far).clip(known.min(0), known.max(0)))
    np.testing.assert_allclose(adapter(far), expected)
    for context in ALL:
        assert np.array_equal(adapter.inputs(context), adapter.read(context))


def test_the_ridge_shrinks_weights_but_not_the_offset():
    fitted = {}
    for ridge in (0.0, 1e3):
        fitted[ridge] = summary()
        train_convex(fitted[ridge], EPISODES, HELDOUT, AdapterLoss(gamma=1.0), ridges=(ridge,))
    assert np.abs(fitted[0.0].parameters[:-1]).max() > 0.1
    assert np.abs(fitted[1e3].parameters[:-1]).max() < 1e-3
    assert abs(fitted[1e3].parameters[-1]) > 0.1


def test_the_kept_ridge_is_the_best_on_held_out_pairs(monkeypatch):
    seen = watched(monkeypatch)
    adapter, loss = summary(EPISODES[0].context), AdapterLoss(gamma=1.0)
    train_convex(adapter, EPISODES[:1], HELDOUT, loss, ridges=(0.0, 0.01, 1e3))
    best = min(seen, key=lambda one: one[0])
    assert len(seen) == 3
    assert np.array_equal(adapter.parameters, best[1])
    assert mean_loss(adapter, HELDOUT, loss) == best[0]
    assert mean_loss(adapter, HELDOUT, loss) != pytest.approx(
        mean_loss(adapter, EPISODES[:1], loss)
    )


def test_a_diverged_adapter_is_refused(monkeypatch):
    monkeypatch.setattr(module, "mean_loss", lambda *_: float("nan"))
    with pytest.raises(InputError):
        train(mlp(), epochs=2, steps=2)
    with pytest.raises(InputError):
        train_convex(ScalarAdapter(), EPISODES, HELDOUT, AdapterLoss())


def test_a_nan_loss_is_no_candidate_and_of_equal_ones_the_first_is_kept(monkeypatch):
    losses, states = iter([float("nan"), 2.0, 1.0, 1.0]), []

    def loss(adapter, *_):
        states.append(adapter.parameters.copy())
        return next(losses)

    monkeypatch.setattr(module, "mean_loss", loss)
    found = train(mlp(), epochs=4, steps=2, lr=0.1)
    assert np.array_equal(found.parameters, states[2])
    assert not np.array_equal(found.parameters, states[3])
