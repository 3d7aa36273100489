"""`auto`: the simplest host and shift that held-out classes do not vote against."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cala.core.fakes import FakePool
from cala.errors import FallbackWarning
from cala.heads import BaseData, auto, make_head, restore_head
from cala.heads.auto import asks_fakes, simplest


def gaussian(seed, classes=12, rows=12, dim=8, spread=4.0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), rows)
    x = 10 * rng.standard_normal((classes, dim))[y] + spread * rng.standard_normal((len(y), dim))
    return x.astype(np.float32), y


def test_ties_go_to_the_simplest():
    assert simplest([[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]) == 0
    assert simplest([[0.5, 0.5, 0.5], [0.6, 0.6, 0.6]]) == 1
    assert simplest([[0.5, 0.5, 0.5], [0.2, 0.9, 0.5]]) == 0, "within one standard error"
    assert simplest([[0.5], [0.9]]) == 0, "one trial has no error to tell them apart"
    assert simplest([[0.1, 0.1], [0.5, 0.5], [0.52, 0.49]]) == 1


def test_real_classes_decide_unless_the_encoder_may_know_them():
    x, y = gaussian(0)
    fakes = FakePool(x[:60].reshape(20, 3, 8), np.arange(40).reshape(20, 2))
    some = np.arange(len(y)) % 2 == 0
    assert not asks_fakes(BaseData(x, y))
    assert not asks_fakes(BaseData(x, y, holdout=np.ones(len(y), bool), fakes=fakes))
    assert asks_fakes(BaseData(x, y, holdout=some))
    assert asks_fakes(BaseData(x, y, fakes=fakes))
    few = FakePool(fakes.features[:3], fakes.pairs[:3])
    assert not asks_fakes(BaseData(x, y, fakes=few)), "three fake classes say nothing"


@pytest.mark.parametrize(
    ("classes", "evidence"),
    [(2, "base classes alone"), (3, "held-out classes"), (12, "held-out classes")],
)
def test_what_it_decides_on(classes, evidence):
    x, y = gaussian(1, classes)
    head = make_head("auto").fit_base(BaseData(x, y))
    assert head.report["evidence"] == evidence
    assert head.report["shift"] in ("none", "one", "class-aware")
    assert head.adapted
    assert len(head.curve.delta) > 1, "it can be moved along its trade-off"


def test_one_row_per_class_is_no_evidence():
    x, y = gaussian(1, 8, 1)
    with pytest.warns(FallbackWarning):
        head = make_head("auto").fit_base(BaseData(x, y, holdout=np.ones(8, bool)))
    assert (head.report["evidence"], head.report["trials"]) == ("base classes alone", 0)


def test_round_gaussian_classes_need_no_whitening():
    x, y = gaussian(2, 20, 20)
    head = make_head("auto").fit_base(BaseData(x, y))
    assert head.report["metric"] == "cosine"
    assert head.host.name == "nearest-mean"


def test_a_direction_that_only_scatters_is_whitened_away():
    rng = np.random.default_rng(3)
    x, y = gaussian(3, 15, 30, dim=12, spread=3.0)
    x[:, 0] += 60 * rng.standard_normal(len(x))
    head = make_head("auto").fit_base(BaseData(x, y))
    assert head.report["metric"] == "whitened"


def test_columns_of_different_units_are_whitened():
    x, y = gaussian(10, 2, 20, spread=2.0)
    x[:, 0] *= 500
    head = make_head("auto").fit_base(BaseData(x, y))
    assert head.report["metric"] == "whitened"


def test_a_given_metric_is_kept():
    x, y = gaussian(4)
    head = make_head("auto", metric="whitened").fit_base(BaseData(x, y))
    assert head.report["metric"] == "whitened"
    assert all("whitened" in name for name in head.report["values"])


@pytest.mark.parametrize("options", [{"objective": "harmonic"}, {"max_base_loss": 0.05}])
def test_other_objectives_leave_one_shift_to_the_operating_point(options):
    x, y = gaussian(5)
    head = make_head("auto", adapter=options).fit_base(BaseData(x, y))
    assert head.report["shift"] in ("none", "class-aware"), "a constant is the operating point's"


def test_no_shift_is_plain_nearest_mean():
    x, y = gaussian(6, 2)
    head = make_head("auto", metric="cosine").fit_base(BaseData(x, y))
    plain = make_head("nearest-mean").fit_base(BaseData(x, y))
    new = gaussian(7, 3, 5)[0][:5] + 20
    for one in (head, plain):
        one.add(new, np.full(5, 9))
    np.testing.assert_allclose(head.logits(x), plain.logits(x), rtol=1e-6)
    assert (head.shift == 0).all()


def test_its_state_is_json_and_answers_the_same():
    x, y = gaussian(8)
    head = make_head("auto").fit_base(BaseData(x, y))
    head.add(x[:5] + 30, np.full(5, 50))
    state = head.state()
    written = json.loads(
        json.dumps({k: state[k] for k in ("name", "config", "meta")}, allow_nan=False)
    )
    again = restore_head({**written, "tensors": state["tensors"]})
    np.testing.assert_array_equal(again.logits(x), head.logits(x))
    assert again.report == head.report


def test_only_the_chosen_host_is_kept():
    x, y = gaussian(11)
    head = make_head("auto").fit_base(BaseData(x, y))
    assert all(host.classes == () for host in head.hosts)
    again = head.blank().fit_base(BaseData(x, y))
    np.testing.assert_array_equal(again.logits(x), head.logits(x))


def test_a_host_of_another_system_is_guarded_too():
    x, y = gaussian(9)
    head = make_head("teen+auto").fit_base(BaseData(x, y))
    assert head.host.name == "teen"
    assert head.report["trials"] > 0


def test_half_a_shift_where_nobody_said_what_the_encoder_saw(monkeypatch):
    monkeypatch.setattr(auto, "simplest", lambda candidates: 1)  # one shift for all
    x, y = gaussian(12)
    told, untold = (
        make_head("auto", metric="cosine").fit_base(BaseData(x, y, holdout=holdout))
        for holdout in (np.ones(len(y), bool), None)
    )
    assert told.report["shift"] == untold.report["shift"] == "one"
    shots = gaussian(13, 3, 5)[0][:5]
    for head in (told, untold):
        head.add(shots, np.full(5, 50))
    np.testing.assert_allclose(untold.shift, told.shift / 2, rtol=1e-5)
