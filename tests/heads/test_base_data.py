"""Base queries are scored as new images would be."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax

import oracle
from cala.heads import BaseData, make_head
from cala.heads.table import FOLDS, TableHead
from problems import blobs, first_of
from refusals import warned

pytestmark = pytest.mark.filterwarnings(
    "ignore::cala.errors.BaseQueryWarning",
    "ignore:fake classes have 5 images:cala.errors.FallbackWarning",
)

N_BASE, DIM = 20, 200
X, Y = blobs(N_BASE, 30, DIM, seed=1, spread=4.0)
FEW = np.arange(len(Y)) % 30 < 5
QUICK = {"episodes": 6, "heldout_episodes": 3, "epochs": 2, "steps": 10}


def scored_accuracy(head, data):
    """Accuracy of base rows as the head's own scorers see them."""
    right = []
    for scorer in head.scorers(data):
        own = scorer.rows.columns
        members = own if scorer.leave_out else np.full_like(own, -1)
        unit = scorer.head.embed(data.features[scorer.rows.order])
        right.append(scorer.head.unit_logits(unit, members).argmax(1) == own)
    return np.concatenate(right).mean()


def test_few_rows_in_many_dimensions_are_scored_by_refitted_heads():
    """Leave-one-out would call base nearly perfect; new images say otherwise."""
    data = BaseData(X[FEW], Y[FEW])
    head = make_head("nearest-mean", metric="whitened", shrinkage=0.5).fit_base(data)
    truth = (head.logits(X[~FEW]).argmax(1) == Y[~FEW]).mean()
    naive = head.unit_logits(head.embed(X[FEW]), Y[FEW]).argmax(1) == Y[FEW]
    assert naive.mean() > truth + 0.2
    assert abs(scored_accuracy(head, data) - truth) < 0.1


def test_every_row_is_scored_once_by_a_head_that_has_not_seen_it():
    data = BaseData(X[FEW], Y[FEW])
    head = make_head("nearest-mean", metric="whitened").fit_base(data)
    scorers = data.scorers(head)
    rows = np.concatenate([scorer.rows.order for scorer in scorers])
    assert sorted(rows.tolist()) == list(range(int(FEW.sum())))
    for scorer in scorers:
        assert not scorer.leave_out
        assert scorer.head.scale == head.scale
        assert int(scorer.head.table.counts.sum()) == int(FEW.sum()) - len(scorer.rows)
        rest = np.setdiff1d(np.arange(len(data)), scorer.rows.order)
        alone = BaseData(X[FEW][rest], Y[FEW][rest])
        plain = make_head("nearest-mean", metric="whitened", scale=head.scale).fit_base(alone)
        np.testing.assert_allclose(scorer.head.logits(X[:9]), plain.logits(X[:9]), atol=1e-9)
    assert int(head.table.counts.sum()) == int(FEW.sum()), "the head itself is untouched"


@pytest.mark.parametrize(("metric", "rows"), [("cosine", FEW), ("whitened", Y >= 0)])
def test_else_leave_one_out_is_enough(metric, rows):
    dim = DIM if metric == "cosine" else 10
    data = BaseData(X[rows, :dim], Y[rows])
    head = make_head("calibrated-mean", metric=metric).fit_base(data)
    (scorer,) = head.scorers(data)
    assert scorer.head is head
    assert scorer.leave_out
    assert len(scorer.rows) == len(data)


@pytest.mark.parametrize(
    ("dim", "rows", "classes", "fair"),
    [(64, 30_000, 60, True), (1280, 3000, 100, False), (10, 5, 5, False)],
)
def test_many_rows_per_dimension_need_no_folds(dim, rows, classes, fair):
    class Rows:
        n_base = classes

        def __len__(self):
            return rows

    Rows.dim = dim
    assert make_head("nearest-mean", metric="whitened")._leaves_out_fairly(Rows()) == fair
    assert make_head("nearest-mean", metric="cosine")._leaves_out_fairly(Rows())


@pytest.mark.parametrize("method", ["nearest-mean", "calibrated-mean", "la", "cala", "cala-plus"])
def test_scorers_are_made_once_per_fit(method, monkeypatch):
    """Scale and adapter both ask for them."""
    calls = []
    real = TableHead._refit

    def refit(self, data, rows):
        calls.append(len(rows))
        return real(self, data, rows)

    monkeypatch.setattr(TableHead, "_refit", refit)
    data = BaseData(X[FEW, :60], Y[FEW])
    make_head(method, metric="whitened", adapter=QUICK).fit_base(data)
    assert len(calls) == FOLDS
    assert sum(len(data) - n for n in calls) == len(data)


def test_single_rows_and_rows_that_trained_the_encoder_are_no_queries():
    columns = np.array([0, 0, 1, 2, 2, 2])
    assert BaseData(X[:6], columns).queries.tolist() == [True, True, False, True, True, True]
    holdout = np.array([True, False, True, False, False, True])
    queries = BaseData(X[:6], columns, holdout=holdout).queries
    assert queries.tolist() == [True, False, False, False, False, True]


def test_classes_without_held_out_rows_take_part_with_all_of_theirs():
    columns = np.array([0, 0, 1, 2, 2, 2])
    holdout = np.array([False, False, True, False, True, False])
    data = BaseData(X[:6], columns, holdout=holdout)
    assert data.queries.tolist() == [True, True, False, False, True, False]
    assert data.coverage() == (1, 2)
    assert BaseData(X[:6], columns, holdout=np.ones(6, dtype=bool)).coverage() == (2, 2)


@pytest.mark.parametrize("metric", ["cosine", "whitened"])
def test_a_hold_out_of_one_row_does_not_let_beta_run_away(metric):
    """One class alone would stand for all of base, and base would have next to nothing to lose."""
    holdout = np.zeros(int(FEW.sum()), dtype=bool)
    holdout[7] = True
    quick = {"episodes": 6, "heldout_episodes": 3}
    alphas = []
    for mask in (holdout, None):
        head = make_head("la", metric=metric, scale=16.0, adapter=quick)
        with warned(*(["no_holdout"] if mask is None else ["partial_holdout", "1 of 20"])):
            head.fit_base(BaseData(X[FEW], Y[FEW], holdout=mask))
        alphas.append(head.adapter.parameters[0])
    assert alphas[0] == pytest.approx(alphas[1], abs=0.3)


def test_the_automatic_scale_is_the_leave_one_out_one():
    x, y = blobs(6, 8, 5, seed=2, spread=1.5)
    head = make_head("nearest-mean", metric="cosine").fit_base(BaseData(x, y))
    scales = np.exp(np.linspace(np.log(1), np.log(200), 400))
    losses = [oracle.fit_scale_loss(x, y, 6, s) for s in scales[::20]]
    best = oracle.fit_scale_loss(x, y, 6, head.scale)
    assert 1 < head.scale < 200
    assert best <= min(losses) + 1e-6
    cosines = head.logits(x) / head.scale

    def naive(scale):
        return -log_softmax(scale * cosines, axis=1)[np.arange(len(y)), y].mean()

    in_sample = min(scales, key=naive)
    assert abs(in_sample - head.scale) > 0.5, "scored in sample the scale would differ"


def test_the_automatic_scale_reads_held_out_rows_only():
    x, y = blobs(6, 20, 5, seed=2, spread=0.3)
    holdout = np.arange(len(y)) % 4 == 0
    x[holdout] += 2 * np.random.default_rng(0).normal(size=(int(holdout.sum()), 5))
    scales = [
        make_head("nearest-mean").fit_base(BaseData(x, y, holdout=mask)).scale
        for mask in (holdout, ~holdout)
    ]
    assert scales[0] < 0.7 * scales[1]


def test_selection_and_the_curve_use_held_out_pairs(monkeypatch):
    import cala.heads.adapted as wrapper
    import cala.heads.adapter_training as module

    pools, curves, fits = [], [], []
    real_draw, real_curve = module.draw_episode, wrapper.pseudo_trade_off
    real_fit = module.train_by_steps

    def draw(pool, plan, rng):
        pools.append({tuple(p) for p in pool.pairs.tolist()})
        return real_draw(pool, plan, rng)

    def curve(episodes, shifts):
        curves.append((episodes, shifts))
        return real_curve(episodes, shifts)

    def fit(adapter, episodes, heldout, *others):
        fits.append((episodes, heldout))
        return real_fit(adapter, episodes, heldout, *others)

    monkeypatch.setattr(module, "draw_episode", draw)
    monkeypatch.setattr(wrapper, "pseudo_trade_off", curve)
    monkeypatch.setattr(module, "train_by_steps", fit)
    quick = {"episodes": 5, "heldout_episodes": 3, "epochs": 1, "steps": 5}
    head = make_head("cala", adapter=quick).fit_base(BaseData(X[FEW], Y[FEW]))
    learned, held = set.union(*pools[:5]), set.union(*pools[5:])
    assert len(pools) == 8
    assert learned
    assert held
    assert not learned & held
    (episodes, heldout), (judged, shifts) = fits[0], curves[0]
    assert (len(episodes), len(heldout)) == (5, 3)
    assert [id(e) for e in judged] == [id(e) for e in heldout]
    for episode, shift in zip(judged, shifts, strict=True):
        np.testing.assert_allclose(shift, head.gamma * head.adapter(episode.context))


MANY, FEWER = (12, 120, 6), (12, 8, 30)  # classes, rows each, dimensions: without folds and with


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("metric", "shape", "folds"),
    [("cosine", FEWER, 1), ("whitened", MANY, 1), ("whitened", FEWER, FOLDS)],
)
@pytest.mark.parametrize(
    "method", ["nearest-mean", "calibrated-mean", "la", "cala", "calibrated-mean+cala-plus"]
)
def test_the_order_of_base_rows_does_not_matter(method, metric, shape, folds, dtype):
    classes, per_class, dim = shape
    x, y = blobs(classes + 3, per_class, dim, seed=4, spread=1.2)
    x = x.astype(dtype)
    base, shots = np.flatnonzero(y < classes), first_of(y, range(classes, classes + 3), 5)
    holdout = np.random.default_rng(3).random(len(y)) < 0.6
    heads = []
    for order in (base, np.random.default_rng(5).permutation(base)):
        data = BaseData(x[order], y[order], holdout=holdout[order])
        head = make_head(method, metric=metric, adapter=QUICK).fit_base(data)
        assert len(data.scorers(head.host)) == folds
        heads.append(head.add(x[shots], y[shots]))
    first, second = heads
    assert second.host.scale == pytest.approx(first.host.scale, rel=2e-4)
    atol = 1e-4 if dtype is np.float64 else 1e-3  # a flat minimum, in single precision
    np.testing.assert_allclose(second.beta, first.beta, atol=atol)
    np.testing.assert_allclose(second.logits(x), first.logits(x), rtol=1e-4, atol=atol)


def test_rows_of_equal_values_may_trade_places():
    x, y = blobs(6, 4, 5)
    x, y = np.concatenate([x, x]), np.concatenate([y, y])
    order = np.random.default_rng(0).permutation(len(y))
    scales = [
        make_head("nearest-mean").fit_base(BaseData(a, b)).scale
        for a, b in ((x, y), (x[order], y[order]))
    ]
    assert scales[0] == pytest.approx(scales[1])


@pytest.mark.parametrize("shape", [MANY, FEWER], ids=["many rows", "few rows"])
@pytest.mark.parametrize("method", ["cala", "cala-plus", "auto"])
def test_a_classifier_fitted_to_shuffled_rows_is_the_same(method, shape):
    from cala import CalaClassifier

    x, y = blobs(shape[0] + 3, *shape[1:], seed=4, spread=1.2)
    names = np.array([f"class {label:02}" for label in y])
    base, shots = np.flatnonzero(y < shape[0]), first_of(y, range(shape[0], shape[0] + 3), 5)
    models = []
    for order in (base, np.random.default_rng(6).permutation(base)):
        model = CalaClassifier(method=method).fit(x[order], names[order], holdout="all")
        models.append(model.partial_fit(x[shots], names[shots]))
    first, second = models
    np.testing.assert_allclose(second.beta_, first.beta_, atol=1e-4)
    np.testing.assert_allclose(second.decision_function(x), first.decision_function(x), atol=1e-4)
    assert np.array_equal(second.predict(x), first.predict(x))
