"""What an adapter does to its host."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cala.core.adapters import ScalarAdapter
from cala.core.cala import ClassContext
from cala.core.fakes import FakePool, draw_pairs
from cala.errors import FallbackWarning, InputError
from cala.heads import BaseData, make_head, restore_head
from cala.heads.adapter_training import CALA, CALA_PLUS
from cala.metrics import session_metrics
from problems import blobs, first_of
from refusals import warned

pytestmark = pytest.mark.filterwarnings("ignore::cala.errors.BaseQueryWarning")

QUICK = {"episodes": 6, "heldout_episodes": 3, "epochs": 3, "steps": 10}
N_BASE = 12
X, Y = blobs(N_BASE + 6, 30, 16, spread=1.2)
BASE = N_BASE > Y
EVERY_ROW = np.ones(int(BASE.sum()), dtype=bool)


def fit(method, **options):
    adapter = {**QUICK, **options.pop("adapter", {})}
    head = make_head(method, adapter=adapter, **options)
    return head.fit_base(BaseData(X[BASE], Y[BASE], holdout=EVERY_ROW))


HOSTS = {name: fit(name, scale=16.0) for name in ("nearest-mean", "la", "cala", "cala-plus")}


def with_novel(head, k=5):
    head = head.fork()
    for label in range(N_BASE, N_BASE + 6):
        rows = first_of(Y, [label], k)
        head.add(X[rows], Y[rows])
    return head


@pytest.mark.parametrize("method", ["la", "cala", "cala-plus"])
def test_gamma_zero_and_delta_zero_is_the_plain_host(method):
    head = with_novel(HOSTS[method])
    plain = with_novel(HOSTS[method].host).logits(X)
    assert not np.array_equal(head.logits(X), plain)
    head.gamma = 0.0
    assert np.array_equal(head.logits(X), plain)


@given(st.floats(-5, 5), st.floats(0, 100))
def test_only_novel_columns_are_shifted(delta, gamma):
    plain, head = with_novel(HOSTS["nearest-mean"]), with_novel(HOSTS["cala"])
    head.gamma, head.delta = gamma, delta
    difference = head.logits(X[:5]) - plain.logits(X[:5])
    assert np.array_equal(difference[:, :N_BASE], np.zeros((5, N_BASE)))
    expected = np.tile(gamma * head.beta[N_BASE:] + delta, (5, 1))
    np.testing.assert_allclose(difference[:, N_BASE:], expected, rtol=1e-9, atol=1e-9)


@given(st.floats(-2, 2))
def test_la_is_cala_with_a_constant_adapter(alpha):
    la, cala = HOSTS["la"].fork(), HOSTS["cala"].fork()
    la.adapter, cala.adapter = ScalarAdapter(), ScalarAdapter()
    la.adapter.parameters = np.array([alpha])
    cala.adapter.parameters = np.array([alpha / cala.gamma])
    np.testing.assert_allclose(
        with_novel(la).logits(X), with_novel(cala).logits(X), rtol=1e-7, atol=1e-7
    )


def test_la_gives_one_shift_and_cala_many():
    assert len(np.unique(with_novel(HOSTS["la"]).beta[N_BASE:])) == 1
    assert len(np.unique(with_novel(HOSTS["cala"]).beta[N_BASE:])) == 6


def test_beta_changes_only_with_the_class_itself():
    head = with_novel(HOSTS["cala-plus"])
    before = head.beta.copy()
    rows = np.flatnonzero(N_BASE + 2 == Y)[5:9]
    head.add(X[rows], Y[rows])
    changed = np.flatnonzero(head.beta != before).tolist()
    assert changed == [N_BASE + 2]
    rows = first_of(Y, [0], 5)
    moved_base = head.beta.copy()
    head.add(X[rows] + 1, Y[rows])
    assert np.array_equal(head.beta, moved_base)


def test_similarity_counts_a_forgotten_base_class():
    whole, less = HOSTS["cala"].fork(), HOSTS["cala"].fork().forget(3)
    assert np.array_equal(with_novel(less).beta[N_BASE - 1 :], with_novel(whole).beta[N_BASE:])


def test_beta_falls_as_shots_grow():
    """More shots make a better prototype, which needs less help: all else equal, β is smaller."""
    adapter = HOSTS["cala-plus"].adapter
    like = np.tile(np.linspace(0.9, -0.2, N_BASE), (5, 1))
    shots = np.array([1.0, 2.0, 5.0, 10.0, 20.0])
    beta = adapter(ClassContext(like, np.full(5, 0.3), shots))
    assert (np.diff(beta) < 0).all()


def test_mean_beta_falls_as_shots_grow_on_real_embeddings(cifar):
    base = cifar.y_train < 60
    head = make_head("cala-plus", scale=16.0).fit_base(
        BaseData(cifar.x_train[base], cifar.y_train[base], fakes=cifar.fakes)
    )
    means = []
    for k in (1, 2, 5, 10, 20, 50):
        rows = first_of(cifar.y_train, range(60, 100), k)
        grown = head.fork().add(cifar.x_train[rows], cifar.y_train[rows])
        means.append(float(grown.beta[60:].mean()))
    assert means == sorted(means, reverse=True), means


@pytest.mark.parametrize("method", ["la", "cala", "cala-plus"])
def test_operating_points_trade_base_for_novel(method):
    head = with_novel(HOSTS[method])
    found = {}
    for name, options in {
        "accuracy": {"objective": "accuracy"},
        "harmonic": {"objective": "harmonic"},
        "strict": {"max_base_loss": 0.0},
        "loose": {"max_base_loss": 0.3},
        "own": {"delta": 1.5},
    }.items():
        head.set_operating_point(**options)
        found[name] = session_metrics(head.logits(X), Y, N_BASE)
    assert head.delta == 1.5
    assert found["strict"].base >= found["loose"].base
    assert found["strict"].novel <= found["loose"].novel
    areas = {name: round(m.ausuc, 9) for name, m in found.items()}
    assert len(set(areas.values())) == 1, "δ moves along the curve, never the curve"
    for bad in ({"max_base_loss": 2.0}, {"delta": float("nan")}, {"objective": "novel"}):
        with pytest.raises(InputError):
            head.set_operating_point(**bad)


def test_few_pairs_fall_back_to_one_shift_and_say_so():
    x, y = blobs(4, 10, 6)
    with warned("few_fakes"):
        head = make_head("cala", adapter=QUICK).fit_base(BaseData(x, y))
    assert head.trained_as.adapter == "scalar"
    assert isinstance(head.adapter, ScalarAdapter)


@pytest.mark.parametrize(
    ("method", "la"),
    [("cala", "la"), ("nearest-mean+cala-plus", "nearest-mean+la")],
)
def test_a_fallback_is_the_same_computation_as_la(method, la, full_adapters):
    x, y = blobs(7, 12, 6, spread=1.5)
    base = y < 4
    shots = {"shots": (2, 5), "novel": 3}
    heads = []
    for name in (method, la):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            head = make_head(name, adapter=shots, scale=4.0).fit_base(BaseData(x[base], y[base]))
        for label in range(4, 7):
            rows = first_of(y, [label], 5)
            head.add(x[rows], y[rows])
        heads.append(head)
    fallen, plain = heads
    assert fallen.recipe.adapter != "scalar"
    assert np.abs(plain.shift[4:]).min() > 0
    assert np.array_equal(fallen.logits(x), plain.logits(x))
    assert fallen.gamma == plain.gamma
    restored = restore_head(fallen.state())
    assert np.array_equal(restored.logits(x), plain.logits(x))


def test_mixed_rows_that_the_metric_knows_by_heart_teach_one_shift_only():
    x, y = blobs(8, 5, 40)
    with warned("few_rows"):
        head = make_head("cala-plus", adapter=QUICK).fit_base(BaseData(x, y))
    assert head.trained_as.adapter == "scalar"
    rng = np.random.default_rng(0)
    pool = FakePool(rng.normal(size=(28, 25, 40)), draw_pairs(8, 28, rng))
    for name, metric, fakes in (("cala-plus", "whitened", pool), ("cala-plus", "cosine", None)):
        head = make_head(name, metric=metric, adapter=QUICK)
        head.fit_base(BaseData(x, y, fakes=fakes))
        assert head.trained_as.adapter == "summary"


def test_single_base_images_switch_the_adapter_off_and_say_so():
    x, y = blobs(12, 1, 6)
    with warned("adapter_off"):
        head = make_head("cala", adapter=QUICK).fit_base(BaseData(x, y))
    assert head.adapter.parameters.tolist() == [0.0]


def test_a_failed_fit_leaves_the_head_as_it_was():
    head = with_novel(HOSTS["cala"])
    before = head.logits(X)
    with pytest.raises(InputError):
        head.fit_base(BaseData(X[Y == 0], Y[Y == 0]))
    assert np.array_equal(head.logits(X), before)


def test_base_queries_come_from_the_hold_out():
    """Held-out rows that sit far from their class make base look weaker, so β falls."""
    rng = np.random.default_rng(0)
    holdout = rng.random(int(BASE.sum())) < 0.3
    x = X[BASE].copy()
    x[holdout] += 3 * rng.normal(size=(int(holdout.sum()), 16))

    def alpha(mask):
        head = make_head("la", scale=16.0, adapter=QUICK)
        head.fit_base(BaseData(x, Y[BASE], holdout=mask))
        return head.adapter.parameters[0]

    assert alpha(holdout) < alpha(~holdout)


def test_the_papers_numbers_are_the_defaults():
    assert (CALA.adapter, CALA.hidden, CALA.gamma, CALA.lr) == ("mlp", (64, 64), 10.0, 1e-3)
    assert (CALA.epochs, CALA.steps, CALA.queries, CALA.loss) == (20, 50, 15, "balanced")
    plan = CALA.plan(60)
    assert (plan.way, plan.sessions, plan.shots) == (5, 8, (5,))
    assert CALA_PLUS.shots == (1, 2, 5, 10, 20)
    assert CALA.from_json(CALA.to_json()) == CALA


def test_the_plan_prepares_for_as_many_classes_as_are_expected():
    for novel, shape in ((10, (5, 2)), (3, (3, 1)), (100, (5, 20)), (None, (5, 8))):
        plan = replace(CALA, novel=novel).plan(60)
        assert (plan.way, plan.sessions) == shape


def test_a_stored_model_moves_to_the_same_operating_points(monkeypatch):
    monkeypatch.setattr("cala.core.operating_point.CURVE_POINTS", 15)
    head = fit("la", scale=16.0)
    assert len(head.curve.delta) <= 15
    again = restore_head(head.state())
    for options in ({"max_base_loss": 0.07}, {"objective": "harmonic"}):
        assert again.set_operating_point(**options) == head.set_operating_point(**options)


def test_novel_classes_of_a_calibrated_host_have_the_common_scale():
    host = with_novel(fit("calibrated-mean"))
    plain = with_novel(fit("nearest-mean", scale=host.scale))
    both = host.logits(X), plain.logits(X)
    np.testing.assert_allclose(both[0][:, N_BASE:], both[1][:, N_BASE:], rtol=1e-7)
    assert not np.allclose(both[0][:, :N_BASE], both[1][:, :N_BASE])
    mean_slope = np.exp(np.log(host._slope[:N_BASE]).mean())
    assert mean_slope == pytest.approx(host.scale)


def test_concentration_needs_ten_base_classes():
    for n_base, calibrated in ((9, False), (10, True)):
        x, y = blobs(n_base, 30, 16, spread=1.2)
        slope = make_head("calibrated-mean").fit_base(BaseData(x, y))._slope
        assert (len(np.unique(slope)) > 1) == calibrated
