"""Base queries are judged as new images would be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import oracle
from cala.errors import BaseQueryWarning
from cala.heads import make_head
from cala.heads.fairness import coverage, fair_rows
from problems import blobs

pytestmark = pytest.mark.filterwarnings(
    "ignore::cala.errors.BaseQueryWarning",
    "ignore:fake classes have 5 images:cala.errors.FallbackWarning",
)

N_BASE, DIM = 20, 200
X, Y = blobs(N_BASE, 30, DIM, seed=1, spread=4.0)
FEW = torch.arange(len(Y)) % 30 < 5


def generator():
    return torch.Generator().manual_seed(0)


def judged_accuracy(head, x, y):
    """Accuracy of base rows as the head's own judges see them."""
    right = []
    for judge in head.judges(x, y, generator()):
        own = y[judge.rows]
        members = own if judge.leave_out else torch.full_like(own, -1)
        z = judge.head.unit_logits(judge.head.embed(x[judge.rows]), members)
        right.append(z.argmax(1) == own)
    return float(torch.cat(right).double().mean())


def test_few_rows_in_many_dimensions_are_judged_by_refitted_heads():
    """Leave-one-out would call base nearly perfect; new images say otherwise."""
    head = make_head("nearest-mean", metric="whitened", shrinkage=0.5).fit_base(X[FEW], Y[FEW])
    truth = float((head.logits(X[~FEW]).argmax(1) == Y[~FEW]).double().mean())
    naive = head.unit_logits(head.embed(X[FEW]), Y[FEW]).argmax(1) == Y[FEW]
    assert float(naive.double().mean()) > truth + 0.2
    assert abs(judged_accuracy(head, X[FEW], Y[FEW]) - truth) < 0.1


def test_every_row_is_judged_once_by_a_head_that_has_not_seen_it():
    head = make_head("nearest-mean", metric="whitened").fit_base(X[FEW], Y[FEW])
    judges = head.judges(X[FEW], Y[FEW], generator())
    rows = torch.cat([judge.rows for judge in judges])
    assert sorted(rows.tolist()) == list(range(int(FEW.sum())))
    for judge in judges:
        assert not judge.leave_out
        assert judge.head.scale == head.scale
        assert int(judge.head.table.counts.sum()) == int(FEW.sum()) - len(judge.rows)
    assert int(head.table.counts.sum()) == int(FEW.sum()), "the head itself is untouched"


@pytest.mark.parametrize(("metric", "rows"), [("cosine", FEW), ("whitened", Y >= 0)])
def test_else_leave_one_out_is_enough(metric, rows):
    dim = DIM if metric == "cosine" else 10
    x, y = X[rows, :dim], Y[rows]
    head = make_head("calibrated-mean", metric=metric).fit_base(x, y)
    (judge,) = head.judges(x, y, generator())
    assert judge.head is head
    assert judge.leave_out
    assert len(judge.rows) == len(y)


def test_single_rows_and_rows_that_trained_the_encoder_are_no_queries():
    columns = torch.tensor([0, 0, 1, 2, 2, 2])
    head = make_head("nearest-mean").fit_base(X[:6], columns)
    assert fair_rows(head, columns, None).tolist() == [True, True, False, True, True, True]
    holdout = torch.tensor([True, False, True, False, False, True])
    assert fair_rows(head, columns, holdout).tolist() == [True, False, False, False, False, True]


def test_classes_without_held_out_rows_take_part_with_all_of_theirs():
    columns = torch.tensor([0, 0, 1, 2, 2, 2])
    head = make_head("nearest-mean").fit_base(X[:6], columns)
    holdout = torch.tensor([False, False, True, False, True, False])
    assert fair_rows(head, columns, holdout).tolist() == [True, True, False, False, True, False]
    assert coverage(head, columns, holdout) == (1, 2)
    assert coverage(head, columns, torch.ones(6, dtype=torch.bool)) == (2, 2)


@pytest.mark.parametrize("metric", ["cosine", "whitened"])
def test_a_hold_out_of_one_row_does_not_let_beta_run_away(metric):
    """One class alone would stand for all of base, and base would have next to nothing to lose."""
    holdout = torch.zeros(int(FEW.sum()), dtype=torch.bool)
    holdout[7] = True
    quick = {"episodes": 6, "heldout_episodes": 3}
    alphas = []
    for mask in (holdout, None):
        head = make_head("la", metric=metric, scale=16.0, adapter=quick)
        with pytest.warns(BaseQueryWarning, match="no hold-out" if mask is None else "1 of 20"):
            head.fit_base(X[FEW], Y[FEW], holdout=mask)
        alphas.append(float(head.adapter.alpha))
    assert alphas[0] == pytest.approx(alphas[1], abs=0.3)


def test_the_automatic_scale_is_the_leave_one_out_one():
    x, y = blobs(6, 8, 5, seed=2, spread=1.5)
    head = make_head("nearest-mean", metric="cosine").fit_base(x, y)
    scales = np.exp(np.linspace(np.log(1), np.log(200), 400))
    losses = [oracle.fit_scale_loss(x.numpy(), y.numpy(), 6, s) for s in scales[::20]]
    best = oracle.fit_scale_loss(x.numpy(), y.numpy(), 6, head.scale)
    assert 1 < head.scale < 200
    assert best <= min(losses) + 1e-6
    naive = torch.nn.functional.cross_entropy
    cosines = head.logits(x) / head.scale
    in_sample = min(scales, key=lambda s: float(naive(s * cosines, y)))
    assert abs(in_sample - head.scale) > 0.5, "scored in sample the scale would differ"


def test_the_automatic_scale_reads_held_out_rows_only():
    x, y = blobs(6, 20, 5, seed=2, spread=0.3)
    holdout = torch.arange(len(y)) % 4 == 0
    noisy = x.clone()
    noisy[holdout] += 2 * torch.tensor(
        np.random.default_rng(0).normal(size=(int(holdout.sum()), 5))
    )
    scales = [
        make_head("nearest-mean").fit_base(noisy, y, holdout=mask).scale
        for mask in (holdout, ~holdout)
    ]
    assert scales[0] < 0.7 * scales[1]


def test_selection_and_the_curve_use_held_out_pairs(monkeypatch):
    import cala.heads.pseudo_training as module

    pools, curves, fits = [], [], []
    real_draw, real_curve = module.draw_episode, module.pseudo_trade_off
    real_fit = module.fit_by_steps

    def draw(pool, plan, generator):
        pools.append({tuple(p) for p in pool.pairs.tolist()})
        return real_draw(pool, plan, generator)

    def curve(episodes, shifts):
        curves.append((episodes, shifts))
        return real_curve(episodes, shifts)

    def fit(adapter, episodes, heldout, objective, **options):
        fits.append((episodes, heldout))
        return real_fit(adapter, episodes, heldout, objective, **options)

    monkeypatch.setattr(module, "draw_episode", draw)
    monkeypatch.setattr(module, "pseudo_trade_off", curve)
    monkeypatch.setattr(module, "fit_by_steps", fit)
    quick = {"episodes": 5, "heldout_episodes": 3, "epochs": 1, "steps": 5}
    head = make_head("cala", adapter=quick).fit_base(X[FEW], Y[FEW])
    learned, held = set.union(*pools[:5]), set.union(*pools[5:])
    assert len(pools) == 8
    assert learned
    assert held
    assert not learned & held
    (episodes, heldout), (judged, shifts) = fits[0], curves[0]
    assert (len(episodes), len(heldout)) == (5, 3)
    assert [id(e) for e in judged] == [id(e) for e in heldout]
    for episode, shift in zip(judged, shifts, strict=True):
        torch.testing.assert_close(shift, head.gamma * head.adapter(episode.context))
