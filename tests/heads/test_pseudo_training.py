"""What adapters are trained on: the host's own logits, the given fakes, calibrated inputs."""

from __future__ import annotations

import pytest
import torch

import cala.heads.pseudo_training as module
from cala.core.mixing import FakePool, draw_pairs, mix_features
from cala.core.similarity import ClassContext
from cala.heads import make_head
from cala.heads.pseudo_training import train_adapter
from cala.heads.recipe import LA
from problems import blobs

pytestmark = pytest.mark.filterwarnings("ignore::cala.errors.BaseQueryWarning")

QUICK = {"episodes": 6, "heldout_episodes": 3}
N_BASE, DIM = 12, 16
X, Y = blobs(N_BASE, 30, DIM, spread=1.2)


def handicapped(head, handicap, seen):
    """The same host, but its novel logits are lower by `handicap`."""
    kind = type(head)

    class Handicapped(kind):
        def unit_logits(self, unit, members=None):
            seen.append(members is not None and bool((members >= 0).any()))
            logits = kind.unit_logits(self, unit, members).clone()
            logits[:, self.n_base :] -= handicap
            return logits

    head.__class__ = Handicapped
    return head


def test_training_reads_the_hosts_own_logits():
    """What the host takes from its novel classes, the adapter gives back."""
    alphas = []
    for handicap in (0.0, 1.5, -0.5):
        seen = []
        head = make_head("nearest-mean", scale=8.0).fit_base(X, Y)
        host = handicapped(head, handicap, seen)
        trained = train_adapter(host, LA, X, Y, fakes=None, holdout=None, seed=0)
        assert len(seen) == LA.episodes + LA.heldout_episodes
        assert all(seen), "base queries are left out of their own prototypes"
        alphas.append(float(trained.adapter.alpha))
    assert alphas[1] == pytest.approx(alphas[0] + 1.5, abs=1e-3)
    assert alphas[2] == pytest.approx(alphas[0] - 0.5, abs=1e-3)


def test_scattered_fakes_need_a_larger_shift_than_tight_ones():
    """Few shots of a scattered class make a poor prototype, and its images fall to base."""
    pairs = draw_pairs(N_BASE, 40, torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    fakes = mix_features(X, Y, pairs, count=20, generator=generator)
    centres = fakes.features.mean(1, keepdim=True)
    alphas = []
    for spread in (0.2, 1.0, 2.0):
        pool = FakePool(centres + spread * (fakes.features - centres), pairs)
        head = make_head("la", scale=16.0, adapter=QUICK).fit_base(X, Y, fakes=pool)
        alphas.append(float(head.adapter.alpha))
    assert alphas == sorted(alphas)
    assert alphas[2] > alphas[0] + 0.5
    mixed = make_head("la", scale=16.0, adapter=QUICK).fit_base(X, Y)
    assert alphas[0] < float(mixed.adapter.alpha) < alphas[2]


def test_the_summary_adapter_reads_inputs_standardised_on_the_fakes(monkeypatch):
    learned = []
    real = module.fit_convex

    def fit(adapter, episodes, heldout, objective, **options):
        learned.extend(episodes)
        return real(adapter, episodes, heldout, objective, **options)

    monkeypatch.setattr(module, "fit_convex", fit)
    head = make_head("cala-plus", adapter=QUICK).fit_base(X, Y)
    inputs = head.adapter.inputs(ClassContext.concatenate([e.context for e in learned]))
    mean, spread = inputs.mean(0), inputs.std(0, correction=0)
    known = [0, 1, 2, 3, 4, 5, 7]  # tightness (6) is imputed where there is one shot
    torch.testing.assert_close(mean, torch.zeros_like(mean), rtol=0, atol=1e-9)
    torch.testing.assert_close(spread[known], torch.ones(7, dtype=spread.dtype))
    assert 0 < float(spread[6]) < 1
