"""Fake classes, episodes, adapter training and the operating point."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cala.core import fitting
from cala.core.adapters import MLPAdapter, ScalarAdapter, SummaryAdapter
from cala.core.fitting import Objective, fit_by_steps, fit_convex, mean_loss
from cala.core.losses import Scores
from cala.core.mixing import (
    FakePool,
    draw_pairs,
    draw_parents,
    mix_features,
    mix_images,
    pool_shape,
)
from cala.core.operating_point import choose_delta, pseudo_trade_off, thinned
from cala.core.prototypes import normalise
from cala.core.pseudo import (
    Episode,
    EpisodePlan,
    draw_base_queries,
    draw_episode,
    draw_fakes,
)
from cala.core.similarity import ClassContext
from cala.errors import InputError
from cala.metrics import trade_off
from problems import blobs


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(st.integers(2, 30), st.integers(1, 60), st.integers(0, 1000))
def test_pairs_are_distinct(n_base, limit, seed):
    pairs = draw_pairs(n_base, limit, seeded(seed))
    assert len(pairs) == min(limit, n_base * (n_base - 1) // 2)
    assert len({frozenset(p) for p in pairs.tolist()}) == len(pairs)
    assert all(len(set(p)) == 2 for p in pairs.tolist())


@given(st.integers(2, 12), st.integers(1, 6), st.integers(1, 6), st.integers(0, 1000))
def test_an_episode_uses_a_pair_once_and_a_session_a_parent_once(n_base, way, sessions, seed):
    pairs = draw_pairs(n_base, 1000, seeded(seed))
    plan = EpisodePlan(way=way, sessions=sessions).fitted(
        FakePool(torch.zeros(len(pairs), 8, 2), pairs), n_base
    )
    chosen = draw_fakes(pairs, plan.way, plan.sessions, seeded(seed))
    assert 1 <= len(chosen) <= plan.way * plan.sessions
    assert len(set(chosen.tolist())) == len(chosen)
    first_session = pairs[chosen[: plan.way]].flatten().tolist()
    assert len(set(first_session)) == len(first_session)


def test_forty_fakes_come_from_sixty_classes():
    pairs = draw_pairs(60, 900, seeded())
    chosen = draw_fakes(pairs, 5, 8, seeded(1))
    assert len(chosen) == 40
    for session in chosen.split(5):
        assert len(set(pairs[session].flatten().tolist())) == 10


@given(st.integers(2, 6), st.integers(1, 9), st.integers(0, 100))
def test_parents_belong_to_their_classes(n_base, count, seed):
    _, columns = blobs(n_base, 7, 3, seed)
    columns = columns[torch.randperm(len(columns), generator=seeded(seed))]
    pairs = draw_pairs(n_base, 100, seeded(seed))
    left, right, lam = draw_parents(columns, pairs, count, seeded(seed))
    assert torch.equal(columns[left], pairs[:, :1].expand_as(left))
    assert torch.equal(columns[right], pairs[:, 1:].expand_as(right))
    assert bool(((lam >= 0.4) & (lam <= 0.6)).all())


def test_lambda_fills_its_range():
    _, _, lam = draw_parents(torch.tensor([0, 1]), torch.tensor([[0, 1]]), 2000, seeded())
    assert 0.4 <= float(lam.min()) < 0.402
    assert 0.598 < float(lam.max()) <= 0.6
    assert float(lam.mean()) == pytest.approx(0.5, abs=0.01)


def test_image_level_mixing_passes_mixed_images_through_the_encoder():
    images, columns = blobs(4, 5, 12)
    images = images.reshape(-1, 3, 2, 2)
    weights = torch.randn(12, 6, dtype=torch.float64, generator=seeded())
    seen = []

    def encode(batch):
        seen.append(len(batch))
        return batch.flatten(1) @ weights

    pairs = draw_pairs(4, 6, seeded(1))
    pool = mix_images(images, columns, pairs, encode, count=5, generator=seeded(2), batch=7)
    assert pool.features.shape == (6, 5, 6)
    assert sum(seen) == 30
    assert max(seen) == 7
    left, right, lam = draw_parents(columns, pairs, 5, seeded(2))
    i, j, factor = left[2, 3], right[2, 3], lam[2, 3].double()
    by_hand = (factor * images[i] + (1 - factor) * images[j]).flatten() @ weights
    torch.testing.assert_close(pool.features[2, 3], by_hand)


def test_feature_level_mixing_stays_between_its_parents():
    x, y = blobs(3, 10, 8, spread=0.1)
    pool = mix_features(x, y, torch.tensor([[0, 2]]), count=20, generator=seeded())
    centre = normalise(normalise(pool.features).mean(1))[0]
    cosines = [float(centre @ normalise(x[y == c].mean(0))) for c in range(3)]
    assert min(cosines[0], cosines[2]) > cosines[1]


def test_feature_level_fakes_scatter_as_much_as_real_classes():
    x, y = blobs(4, 200, 16)
    pairs = draw_pairs(4, 6, seeded())

    def scatter(rows):
        return float((rows - rows.mean(-2, keepdim=True)).square().sum(-1).mean())

    real = sum(scatter(normalise(x[y == c])) for c in range(4)) / 4
    made = {
        keep: mix_features(x, y, pairs, count=400, generator=seeded(1), keep_spread=keep)
        for keep in (True, False)
    }
    assert scatter(made[True].features) == pytest.approx(real, rel=0.1)
    assert scatter(made[False].features) < 0.6 * real
    torch.testing.assert_close(
        made[True].features.mean(1), made[False].features.mean(1), atol=0.03, rtol=0
    )


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 50))
def test_shots_and_queries_are_disjoint(k1, k2, seed):
    pairs = draw_pairs(8, 28, seeded(seed))
    pool = FakePool(torch.zeros(28, 6, 2), pairs)
    plan = EpisodePlan(way=3, sessions=2, shots=(k1, k2), queries=3)
    draw = draw_episode(pool, plan.fitted(pool, 8), seeded(seed))
    for fake in range(len(draw.fakes)):
        shots = set(draw.shot_rows[draw.shot_of == fake].tolist())
        queries = set(draw.query_rows[draw.query_of == fake].tolist())
        assert len(shots) in (k1, k2)
        assert len(queries) == min(3, 6 - len(shots))
        assert not shots & queries


def test_more_shots_than_images_shrink_to_what_the_pool_has():
    pool = FakePool(torch.zeros(3, 4, 2), draw_pairs(3, 3, seeded()))
    plan = EpisodePlan(way=5, sessions=8, shots=(20,)).fitted(pool, 3)
    assert (plan.way, plan.sessions, plan.shots) == (1, 3, (3,))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.integers(0, 8), st.integers(0, 99))
def test_base_queries_are_balanced(labels, count, seed):
    columns = torch.tensor(labels)
    rows = draw_base_queries(columns, count, seeded(seed))
    assert len(set(rows.tolist())) == len(rows)
    for c in set(labels):
        assert int((columns[rows] == c).sum()) == min(count, labels.count(c))


def episode(seed: int = 0, n_base: int = 4, n_novel: int = 6, dim: int = 8) -> Episode:
    """A scored episode of random classes in which each class needs its own shift."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_base + n_novel), 12)
    s = rng.uniform(0, 1, size=(n_novel, n_base))
    z = rng.normal(size=(len(y), n_base + n_novel))
    z[np.arange(len(y)), y] += 2
    z[:, n_base:] -= 3 * s.mean(1)
    context = ClassContext(
        torch.tensor(s), torch.tensor(rng.uniform(0.2, 0.8, n_novel)), torch.full((n_novel,), 5.0)
    )
    return Episode(context, Scores.of(torch.tensor(z), torch.tensor(y), n_base))


EPISODES = [episode(seed) for seed in range(8)]
HELDOUT = [episode(seed) for seed in range(100, 104)]


def test_scalar_adapter_finds_the_best_shift():
    adapter = ScalarAdapter().double()
    objective = Objective(gamma=1.0)
    fit_convex(adapter, EPISODES, [], objective)
    best = mean_loss(adapter, EPISODES, objective)
    alpha = float(adapter.alpha.detach())
    for other in (alpha - 0.05, alpha + 0.05, 0.0):
        with torch.no_grad():
            adapter.alpha.fill_(other)
        assert best < mean_loss(adapter, EPISODES, objective)


@pytest.mark.parametrize("kind", ["mlp", "summary"])
def test_class_aware_adapters_beat_the_scalar_on_held_out_pairs(kind):
    objective = Objective(gamma=10.0 if kind == "mlp" else 1.0)
    scalar = ScalarAdapter().double()
    fit_convex(scalar, EPISODES, HELDOUT, Objective(gamma=1.0))
    if kind == "mlp":
        adapter = MLPAdapter(4, generator=seeded()).double()
        fit_by_steps(adapter, EPISODES, HELDOUT, objective, generator=seeded(1))
    else:
        adapter = SummaryAdapter(4).double()
        adapter.calibrate(ClassContext.concatenate([e.context for e in EPISODES]))
        fit_convex(adapter, EPISODES, HELDOUT, objective, ridges=(1e-4, 1e-2))
    ours = mean_loss(adapter, HELDOUT, objective)
    assert ours < mean_loss(scalar, HELDOUT, Objective(gamma=1.0))


def test_the_kept_epoch_is_the_best_on_held_out_pairs():
    adapter = MLPAdapter(4, generator=seeded()).double()
    result = fit_by_steps(
        adapter, EPISODES, HELDOUT, Objective(), generator=seeded(1), epochs=6, steps=20, lr=0.05
    )
    assert result.kept == int(np.argmin(result.heldout))
    assert mean_loss(adapter, HELDOUT, Objective()) == pytest.approx(min(result.heldout))


def test_without_held_out_pairs_the_last_epoch_is_kept():
    def train(epochs):
        adapter = MLPAdapter(4, generator=seeded()).double()
        fit_by_steps(adapter, EPISODES, [], Objective(), generator=seeded(1), epochs=epochs)
        return adapter.state_dict()["layers.0.weight"]

    assert not torch.equal(train(1), train(2))


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_training_is_deterministic(optimiser):
    def beta():
        adapter = MLPAdapter(4, generator=seeded(3)).double()
        fit_by_steps(
            adapter,
            EPISODES,
            HELDOUT,
            Objective(),
            generator=seeded(4),
            epochs=2,
            optimiser=optimiser,
        )
        return adapter(HELDOUT[0].context)

    assert torch.equal(beta(), beta())


def test_adapters_do_not_touch_global_random_state():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    MLPAdapter(5, generator=seeded())
    draw_episode(
        FakePool(torch.zeros(3, 8, 2), draw_pairs(3, 3, seeded())), EpisodePlan(), seeded()
    )
    assert torch.equal(before, torch.get_rng_state())


def test_summary_adapter_imputes_the_tightness_of_a_single_shot():
    adapter = SummaryAdapter(4).double()
    adapter.calibrate(EPISODES[0].context)
    with torch.no_grad():
        adapter.weight.fill_(1.0)
    c = EPISODES[0].context
    single = ClassContext(c.similarity, torch.full_like(c.tightness, torch.nan), c.shots)
    average = ClassContext(c.similarity, c.tightness.mean().expand_as(c.tightness), c.shots)
    torch.testing.assert_close(adapter(single), adapter(average))


def test_summary_inputs_by_hand():
    """Top similarities in descending order, mean, tightness, log K, standardised on the fakes."""
    context = ClassContext(
        torch.tensor([[0.1, 0.9, 0.5], [0.7, 0.3, 0.2]], dtype=torch.float64),
        torch.tensor([0.6, 0.2], dtype=torch.float64),
        torch.tensor([5.0, 20.0], dtype=torch.float64),
    )
    adapter = SummaryAdapter(3, top=2).double()
    columns = np.array([[0.9, 0.5, 0.5, 0.6, np.log(5)], [0.7, 0.3, 0.4, 0.2, np.log(20)]])
    np.testing.assert_allclose(adapter.inputs(context), columns)
    adapter.calibrate(context)
    standard = (columns - columns.mean(0)) / columns.std(0)
    np.testing.assert_allclose(adapter.inputs(context), standard)
    constant = ClassContext(context.similarity, context.tightness, torch.full((2,), 5.0))
    adapter.calibrate(constant)
    assert (adapter.inputs(constant)[:, -1] == 0).all(), "a constant input is no input"


def test_the_ridge_shrinks_weights_but_not_the_offset():
    fitted = {}
    for ridge in (0.0, 1e3):
        adapter = SummaryAdapter(4).double()
        adapter.calibrate(ClassContext.concatenate([e.context for e in EPISODES]))
        fit_convex(adapter, EPISODES, HELDOUT, Objective(gamma=1.0), ridges=(ridge,))
        fitted[ridge] = adapter
    assert float(fitted[0.0].weight.detach().abs().max()) > 0.1
    assert float(fitted[1e3].weight.detach().abs().max()) < 1e-3
    assert float(fitted[1e3].bias.detach().abs()) > 0.1


def test_the_kept_ridge_is_the_best_on_held_out_pairs():
    adapter = SummaryAdapter(4).double()
    adapter.calibrate(ClassContext.concatenate([e.context for e in EPISODES[:1]]))
    objective = Objective(gamma=1.0)
    result = fit_convex(adapter, EPISODES[:1], HELDOUT, objective, ridges=(0.0, 0.01, 1e3))
    assert result.kept == int(np.argmin(result.heldout))
    assert mean_loss(adapter, HELDOUT, objective) == pytest.approx(min(result.heldout))
    assert mean_loss(adapter, HELDOUT, objective) != pytest.approx(
        mean_loss(adapter, EPISODES[:1], objective)
    )


def test_pseudo_trade_off_weighs_classes_not_queries():
    """Class 0 has 9 queries, all right; class 1 has one, which is wrong."""
    y = np.array([0] * 9 + [1] + [2] * 4)
    z = np.zeros((14, 3))
    z[:10, 0] = 5.0
    z[10:, 2] = 1.0
    context = ClassContext(torch.zeros(1, 2), torch.zeros(1), torch.ones(1))
    scored = Episode(context, Scores.of(torch.tensor(z), torch.tensor(y), 2))
    assert pseudo_trade_off([scored], [torch.zeros(1)]).base[0] == pytest.approx(0.5)


def test_pseudo_trade_off_is_the_trade_off_of_the_full_logits():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(7), 9)
    z = rng.normal(size=(len(y), 7))
    z[np.arange(len(y)), y] += 1
    shift = torch.tensor(rng.normal(size=3))
    context = ClassContext(torch.zeros(3, 4), torch.zeros(3), torch.ones(3))
    made = pseudo_trade_off(
        [Episode(context, Scores.of(torch.tensor(z), torch.tensor(y), 4))], [shift]
    )
    z[:, 4:] += shift.numpy()
    whole = trade_off(z, y, 4)
    assert made.area == pytest.approx(whole.area)
    np.testing.assert_allclose(made.delta[1:], whole.delta[1:])


def test_operating_points_move_the_way_they_say():
    shifts = [torch.zeros(6) for _ in HELDOUT]
    curve = pseudo_trade_off(HELDOUT, shifts)
    assert choose_delta(curve, "accuracy") == 0.0
    strict, loose = (choose_delta(curve, max_base_loss=loss) for loss in (0.0, 0.2))
    assert strict < loose

    def at(delta):
        index = np.searchsorted(curve.delta, delta, side="right") - 1
        return curve.base[index], curve.novel[index]

    assert at(strict)[0] == pytest.approx(curve.base[0])
    assert at(loose)[0] >= curve.base[0] - 0.2 - 1e-9
    base, novel = at(choose_delta(curve, "harmonic"))
    hm = 2 * base * novel / (base + novel)
    every = 2 * curve.base * curve.novel / np.maximum(curve.base + curve.novel, 1e-12)
    assert hm == pytest.approx(every.max())
    chosen = choose_delta(curve, "harmonic")
    assert np.abs(curve.delta[1:] - chosen).min() > 0, "inside an interval, not on its edge"
    with pytest.raises(ValueError, match="unknown objective 'best'"):
        choose_delta(curve, "best")


def test_a_thinned_curve_keeps_its_ends_and_nearly_its_area():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 3000)
    z = rng.normal(size=(3000, 10))
    z[np.arange(3000), y] += 1
    curve = trade_off(z, y, 6)
    thin = thinned(curve, 200)
    assert len(thin.delta) <= 200
    assert thin.base[0] == curve.base[0]
    assert thin.novel[-1] == curve.novel[-1]
    assert thin.area == pytest.approx(curve.area, abs=2e-3)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(1, 12), st.integers(0, 99))
def test_no_row_is_mixed_twice_into_a_fake_class_that_has_enough(sizes, images, seed):
    columns = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    pairs = draw_pairs(len(sizes), 20, seeded(seed))
    left, right, _ = draw_parents(columns, pairs, images, seeded(seed))
    for side, rows in enumerate((left, right)):
        assert torch.equal(columns[rows], pairs[:, side : side + 1].expand(-1, images))
        for parent, used in zip(pairs[:, side].tolist(), rows, strict=True):
            assert len(used.unique()) == min(images, sizes[parent])


@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=30), st.integers(1, 99), st.integers(1, 30)
)
def test_the_shape_of_a_pool_fits_the_rows(sizes, pairs, images):
    columns = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    found, each = pool_shape(columns, pairs, images)
    assert found * each <= pairs * images
    assert found <= len(sizes) * (len(sizes) - 1) // 2
    assert each <= images
    assert each <= 2 or 2 * sum(size >= each for size in sizes) >= len(sizes)


def test_a_diverged_adapter_is_refused(monkeypatch):
    monkeypatch.setattr(fitting, "mean_loss", lambda *_: float("nan"))
    mlp, scalar = MLPAdapter(4, generator=seeded()).double(), ScalarAdapter().double()
    with pytest.raises(InputError):
        fit_by_steps(mlp, EPISODES, HELDOUT, Objective(), generator=seeded(), epochs=2, steps=2)
    with pytest.raises(InputError):
        fit_convex(scalar, EPISODES, HELDOUT, Objective())


def test_a_nan_loss_is_no_candidate_and_of_equal_ones_the_first_is_kept(monkeypatch):
    losses, states = iter([float("nan"), 2.0, 1.0, 1.0]), []

    def loss(adapter, *_):
        states.append({k: v.clone() for k, v in adapter.state_dict().items()})
        return next(losses)

    monkeypatch.setattr(fitting, "mean_loss", loss)
    mlp = MLPAdapter(4, generator=seeded()).double()
    found = fit_by_steps(
        mlp, EPISODES, HELDOUT, Objective(), generator=seeded(), epochs=4, steps=2, lr=0.1
    )
    assert found.kept == 2
    assert all(torch.equal(v, states[2][k]) for k, v in mlp.state_dict().items())
    assert any(not torch.equal(v, states[3][k]) for k, v in mlp.state_dict().items())
