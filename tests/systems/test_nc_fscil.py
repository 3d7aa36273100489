"""NC-FSCIL's head: fixed vertices, and a neck that sessions turn one after the other."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest
import torch

from cala.heads import HEADS, make_head
from cala.heads.base_data import BaseData
from cala.systems import nc_fscil
from cala.systems.nc_fscil import NECK_PREFIX, VERTICES, Neck, _one_less, turn_neck
from problems import blobs, first_of, random_parts
from refusals import refused

pytestmark = pytest.mark.filterwarnings(
    "ignore::cala.errors.BaseQueryWarning", "ignore::cala.errors.FallbackWarning"
)

N_BASE, DIM, STEPS, LR = 5, 7, 12, 0.1
X, Y = blobs(N_BASE + 6, 8, DIM)
BASE = N_BASE > Y
PARTS = random_parts("nc-fscil", DIM)
QUICK = {"episodes": 4, "heldout_episodes": 2, "epochs": 2, "steps": 5}


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def made(parts=PARTS, method="nc-fscil", **options):
    return make_head(method, **{"steps": STEPS, "lr": LR, "parts": parts, **options})


def fitted(**options):
    return made(**options).fit_base(BaseData(X[BASE], Y[BASE]))


def shots(*labels, k=3):
    rows = first_of(Y, labels, k)
    return X[rows], Y[rows]


def start() -> Neck:
    neck = Neck(DIM, PARTS[VERTICES].shape[1]).double().requires_grad_(False)
    parts = {k: torch.tensor(v) for k, v in PARTS.items() if k != VERTICES}
    neck.load_state_dict({k.removeprefix(NECK_PREFIX): v for k, v in parts.items()})
    return neck


def turned(neck, rows, places, weights) -> Neck:
    """After a session that the test describes by arrays."""
    weights = np.array(weights) / sum(weights)
    tensors = map(torch.from_numpy, (np.stack(rows), vertices(*places), weights))
    return turn_neck(neck, *tensors, steps=STEPS, lr=LR)


def cosines(neck, *places):
    """Of all rows, after the neck, to some vertices."""
    return unit(neck(torch.from_numpy(unit(X))).numpy()) @ vertices(*places).T


def vertices(*places):
    return unit(PARTS[VERTICES].astype(float))[list(places)]


def mean_of(label, k=None):
    return unit(unit(X[label == Y][:k]).mean(0))


def test_base_logits_are_cosines_of_the_neck_as_it_was_trained():
    head = fitted(scale=3.0)
    np.testing.assert_allclose(head.logits(X), 3.0 * cosines(start(), *range(N_BASE)))


def test_sessions_are_steps_on_means_from_where_the_last_one_ended():
    head = fitted(scale=1.0).add(*shots(6, 8, k=3)).add(*shots(5, k=7))
    rows = [*map(mean_of, range(N_BASE)), mean_of(6, 3), mean_of(8, 3)]
    neck = turned(start(), rows, range(7), [1.0] * N_BASE + [5.0, 5.0])
    neck = turned(neck, [*rows, mean_of(5, 7)], range(8), [1.0] * 7 + [5.0])
    assert head.classes == (0, 1, 2, 3, 4, 6, 8, 5)
    np.testing.assert_allclose(head.logits(X), cosines(neck, *range(8)), rtol=1e-7, atol=1e-9)
    together = fitted(scale=1.0).add(*shots(6, 8)).add(*shots(5))
    at_once = fitted(scale=1.0).add(*shots(5, 6, 8))
    assert not np.allclose(np.sort(together.logits(X), 1), np.sort(at_once.logits(X), 1))


def test_more_shots_later_are_as_if_they_had_been_there():
    late = fitted().add(*shots(6, 7)).add(*shots(8)).add(X[Y == 6][3:], Y[Y == 6][3:])
    rows = np.concatenate([shots(6, k=8)[0], shots(7)[0]])
    labels = np.concatenate([shots(6, k=8)[1], shots(7)[1]])
    early = fitted().add(rows, labels).add(*shots(8))
    np.testing.assert_allclose(late.logits(X), early.logits(X), rtol=1e-7, atol=1e-9)


def test_shots_of_a_base_class_alone_are_a_session_too():
    head = fitted().add(*shots(2))
    before = fitted()
    assert head.room == before.room
    assert not np.allclose(head.logits(X), before.logits(X))
    assert head.add(*shots(6)).classes == (*range(N_BASE), 6)


def test_forgetting_is_never_having_learned():
    whole = fitted(scale=1.0).add(*shots(6, 7)).add(*shots(8)).add(*shots(9, 10))
    for gone, rest in ((7, ((6,), (8,), (9, 10))), (8, ((6, 7), (9, 10)))):
        other = fitted(scale=1.0)
        for labels in rest:
            other.add(*shots(*labels))
        found = whole.fork().forget(gone)
        np.testing.assert_allclose(found.logits(X), other.logits(X), rtol=1e-7, atol=1e-9)
        assert found.room == other.room
    for label in (6, 7, 8, 9, 10):
        whole.forget(label)
    assert np.array_equal(whole.logits(X), fitted(scale=1.0).logits(X))


def test_other_base_classes_keep_their_vertices_and_new_ones_get_an_unused_one():
    head = fitted(scale=1.0).forget(4).forget(1)
    neck = start()
    np.testing.assert_allclose(head.logits(X), cosines(neck, 0, 2, 3))
    head.add(*shots(6))
    rows = [mean_of(0), mean_of(2), mean_of(3), mean_of(6, 3)]
    neck = turned(neck, rows, (0, 2, 3, N_BASE), [1.0, 1.0, 1.0, 5.0])
    expected = cosines(neck, 0, 2, 3, N_BASE)
    np.testing.assert_allclose(head.logits(X), expected, rtol=1e-7, atol=1e-9)


def test_no_more_classes_than_vertices():
    few = {**PARTS, VERTICES: PARTS[VERTICES][: N_BASE + 2]}
    head = fitted(parts=few).add(*shots(6, 7))
    assert head.room == 0
    before = head.logits(X)
    with refused("7 classes", 8, code="no_room") as caught:
        head.add(*shots(8))
    assert "--method nc-fscil" in caught.value.fix
    assert np.array_equal(head.logits(X), before)
    assert head.add(*shots(6, k=5)).room == 0
    with refused("4 classes", 5, code="no_room"):
        fitted(parts={**PARTS, VERTICES: PARTS[VERTICES][:4]})


@pytest.mark.parametrize("room", [1, 2])
def test_adapters_try_out_no_more_fake_classes_than_there_is_room_for(room):
    few = {**PARTS, VERTICES: PARTS[VERTICES][: N_BASE + room]}
    head = fitted(method="nc-fscil+cala", parts=few, adapter=QUICK)
    assert head.room == room
    assert np.isfinite(head.add(*shots(6)).logits(X)).all()
    none = {**PARTS, VERTICES: PARTS[VERTICES][:N_BASE]}
    with refused("fake class", code="no_room"):
        fitted(method="nc-fscil+la", parts=none, adapter=QUICK)


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 0), ("steps", 1.5), ("lr", 0.0), ("lr", "auto")],
)
def test_bad_options_are_named(name, value):
    with refused(repr(value), field=name):
        made(**{name: value})


def test_sizes_of_sessions_without_one_class():
    assert _one_less((0, 2, 1), 0) == (0, 1, 1)
    assert _one_less((0, 2, 1), 2) == (0, 2)
    assert _one_less((1,), 0) == ()


def test_sessions_of_forks_leave_each_other_alone():
    """Threads read one head while forks of it learn; what is shared is never written to."""
    head = fitted().add(*shots(6))
    before, neck = head.logits(X), copy.deepcopy(head._neck.state_dict())
    found, expected = {}, {c: head.fork().add(*shots(c)).logits(X) for c in (7, 8, 9)}

    def learn(label):
        found[label] = head.fork().add(*shots(label)).logits(X)

    threads = [threading.Thread(target=learn, args=(label,)) for label in expected]
    for thread in threads:
        thread.start()
    reads = [head.logits(X) for _ in range(20)]
    for thread in threads:
        thread.join()
    assert all(np.array_equal(read, before) for read in reads)
    assert all(np.array_equal(found[label], expected[label]) for label in expected)
    assert all(torch.equal(value, neck[name]) for name, value in head._neck.state_dict().items())


def test_a_state_goes_on_where_it_was():
    head = fitted().add(*shots(6, 7)).forget(2)
    state = head.state()
    assert all(isinstance(value, np.ndarray) for value in state["tensors"].values())
    again = HEADS["nc-fscil"].from_state(state)
    assert np.array_equal(again.logits(X), head.logits(X))
    assert np.array_equal(again.add(*shots(8)).logits(X), head.add(*shots(8)).logits(X))


def own(x=X[BASE], y=Y[BASE], *, holdout=None, **options):
    """Without parts: the head trains its neck."""
    head = make_head("nc-fscil", steps=STEPS, lr=LR, **options)
    return head.fit_base(BaseData(x, y, holdout=holdout))


def test_a_neck_is_trained_where_none_is_given():
    x, y = blobs(N_BASE + 2, 40, DIM, spread=0.4)
    learn = np.arange(len(y)) % 2 == 0
    base = y < N_BASE
    head = own(x[learn & base], y[learn & base])
    assert head.room == 512 - N_BASE
    right = head.logits(x[~learn & base]).argmax(1) == y[~learn & base]
    assert right.mean() > 0.9
    cosine = head._scores(head.embed(x[learn & base]), None)[
        np.arange(base.sum() // 2), y[learn & base]
    ]
    assert cosine.mean() > 0.8  # at their vertices; a random neck: about 0
    rows = first_of(np.where(learn, y, -1), (5, 6), 5)
    head.add(x[rows], y[rows])
    assert (head.logits(x[~learn]).argmax(1) == y[~learn]).mean() > 0.6  # chance: 1/7
    again = HEADS["nc-fscil"].from_state(head.state())
    assert np.array_equal(again.logits(x), head.logits(x))
    assert again.blank().parts == {}


def test_the_order_of_rows_does_not_matter_to_the_neck():
    order = np.random.default_rng(1).permutation(int(BASE.sum()))
    one, other = own(), own(X[BASE][order], Y[BASE][order])
    assert np.array_equal(one.parts[VERTICES], other.parts[VERTICES])
    np.testing.assert_allclose(one.logits(X), other.logits(X), rtol=1e-6)


def test_a_head_that_is_fitted_again_trains_another_neck():
    head = own()
    before = head.logits(X)
    head.fit_base(BaseData(X[BASE][:, :4], Y[BASE]))
    assert head.logits(X[:, :4]).shape == before.shape
    assert np.array_equal(head.fit_base(BaseData(X[BASE], Y[BASE])).logits(X), before)


def test_held_out_rows_stop_the_training_and_train_nothing(monkeypatch):
    holdout = np.arange(int(BASE.sum())) % 4 == 0
    moved = X[BASE] + 3.0 * holdout[:, None]
    until_it_gains_no_more = own(holdout=holdout), own(moved, holdout=holdout)
    monkeypatch.setattr(nc_fscil, "_RATES", (0.25,))
    monkeypatch.setattr(nc_fscil, "LONGEST", 1)
    once = own(holdout=holdout), own(moved, holdout=holdout)
    name = f"{NECK_PREFIX}skip.weight"
    assert np.array_equal(once[0].parts[name], once[1].parts[name])
    found = [head.parts[name] for head in until_it_gains_no_more]
    assert not np.array_equal(*found)
    assert own(holdout=np.ones(len(holdout), bool)).room == 512 - N_BASE  # a tenth is held out


def test_one_image_per_class_trains_a_neck_too():
    rows = first_of(Y, range(N_BASE), 1)
    head = own(X[rows], Y[rows])
    assert head.logits(X[rows]).argmax(1).tolist() == list(range(N_BASE))
    assert np.isfinite(head.add(*shots(6)).logits(X)).all()
