"""NC-FSCIL's head: fixed vertices, and a neck that sessions turn one after the other."""

from __future__ import annotations

import pytest
import torch

from cala.core.neck import NAME, VERTICES, Neck
from cala.core.neck_session import turn_neck
from cala.errors import InputError
from cala.heads import make_head
from cala.heads.nc_fscil import _one_less
from problems import blobs, random_parts

pytestmark = pytest.mark.filterwarnings(
    "ignore::cala.errors.BaseQueryWarning", "ignore::cala.errors.FallbackWarning"
)

N_BASE, DIM, STEPS, LR = 5, 7, 12, 0.1
X, Y = blobs(N_BASE + 6, 8, DIM)
BASE = N_BASE > Y
PARTS = random_parts("nc-fscil", DIM)
QUICK = {"episodes": 4, "heldout_episodes": 2, "epochs": 2, "steps": 5}


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def made(parts=PARTS, method="nc-fscil", **options):
    return make_head(method, **{"steps": STEPS, "lr": LR, "parts": parts, **options})


def fitted(**options):
    return made(**options).fit_base(X[BASE], Y[BASE])


def shots(*labels, k=3):
    rows = torch.cat([(label == Y).nonzero()[:k, 0] for label in labels])
    return X[rows], Y[rows]


def start() -> Neck:
    neck = Neck(DIM, PARTS[VERTICES].shape[1]).double().requires_grad_(False)
    neck.load_state_dict({k.removeprefix(NAME): v for k, v in PARTS.items() if k != VERTICES})
    return neck


def vertices(*places):
    return unit(PARTS[VERTICES].double())[list(places)]


def mean_of(label, k=None):
    return unit(unit(X[label == Y][:k]).mean(0))


def test_base_logits_are_cosines_of_the_neck_as_it_was_trained():
    head = fitted(scale=3.0)
    expected = 3.0 * unit(start()(unit(X))) @ vertices(*range(N_BASE)).T
    torch.testing.assert_close(head.logits(X), expected)


def test_sessions_are_steps_on_means_from_where_the_last_one_ended():
    head = fitted(scale=1.0).add(*shots(6, 8, k=3)).add(*shots(5, k=7))
    base = [mean_of(c) for c in range(N_BASE)]
    neck, rows = start(), torch.stack([*base, mean_of(6, 3), mean_of(8, 3)])
    weights = torch.tensor([1.0] * N_BASE + [5.0, 5.0]).double() / (N_BASE + 10)
    neck = turn_neck(neck, rows, vertices(*range(7)), weights, steps=STEPS, lr=LR)
    rows = torch.cat([rows, mean_of(5, 7)[None]])
    weights = torch.tensor([1.0] * 7 + [5.0]).double() / 12
    neck = turn_neck(neck, rows, vertices(*range(8)), weights, steps=STEPS, lr=LR)
    assert head.classes == (0, 1, 2, 3, 4, 6, 8, 5)
    torch.testing.assert_close(head.logits(X), unit(neck(unit(X))) @ vertices(*range(8)).T)
    together = fitted(scale=1.0).add(*shots(6, 8)).add(*shots(5))
    at_once = fitted(scale=1.0).add(*shots(5, 6, 8))
    assert not torch.allclose(together.logits(X).sort(1).values, at_once.logits(X).sort(1).values)


def test_more_shots_later_are_as_if_they_had_been_there():
    late = fitted().add(*shots(6, 7)).add(*shots(8)).add(X[Y == 6][3:], Y[Y == 6][3:])
    rows = torch.cat([shots(6, k=8)[0], shots(7)[0]])
    labels = torch.cat([shots(6, k=8)[1], shots(7)[1]])
    early = fitted().add(rows, labels).add(*shots(8))
    torch.testing.assert_close(late.logits(X), early.logits(X))


def test_shots_of_a_base_class_alone_are_a_session_too():
    head = fitted().add(*shots(2))
    before = fitted()
    assert head.room == before.room
    assert not torch.allclose(head.logits(X), before.logits(X))
    assert head.add(*shots(6)).classes == (*range(N_BASE), 6)


def test_forgetting_is_never_having_learned():
    whole = fitted(scale=1.0).add(*shots(6, 7)).add(*shots(8)).add(*shots(9, 10))
    for gone, rest in ((7, ((6,), (8,), (9, 10))), (8, ((6, 7), (9, 10)))):
        other = fitted(scale=1.0)
        for labels in rest:
            other.add(*shots(*labels))
        found = whole.fork().forget(gone)
        torch.testing.assert_close(found.logits(X), other.logits(X))
        assert found.room == other.room
    for label in (6, 7, 8, 9, 10):
        whole.forget(label)
    assert torch.equal(whole.logits(X), fitted(scale=1.0).logits(X))


def test_other_base_classes_keep_their_vertices_and_new_ones_get_an_unused_one():
    head = fitted(scale=1.0).forget(4).forget(1)
    neck = start()
    torch.testing.assert_close(head.logits(X), unit(neck(unit(X))) @ vertices(0, 2, 3).T)
    head.add(*shots(6))
    rows = torch.stack([mean_of(0), mean_of(2), mean_of(3), mean_of(6, 3)])
    weights = torch.tensor([1.0, 1.0, 1.0, 5.0]).double() / 8
    neck = turn_neck(neck, rows, vertices(0, 2, 3, N_BASE), weights, steps=STEPS, lr=LR)
    torch.testing.assert_close(head.logits(X), unit(neck(unit(X))) @ vertices(0, 2, 3, N_BASE).T)


def test_no_more_classes_than_vertices():
    few = {**PARTS, VERTICES: PARTS[VERTICES][: N_BASE + 2]}
    head = fitted(parts=few).add(*shots(6, 7))
    assert head.room == 0
    before = head.logits(X)
    with pytest.raises(InputError, match=r"room for 7 classes, and now they are 8: train .*cala"):
        head.add(*shots(8))
    assert torch.equal(head.logits(X), before)
    assert head.add(*shots(6, k=5)).room == 0
    with pytest.raises(InputError, match="room for 4 classes, and now they are 5"):
        fitted(parts={**PARTS, VERTICES: PARTS[VERTICES][:4]})


@pytest.mark.parametrize("room", [1, 2])
def test_adapters_try_out_no_more_fake_classes_than_there_is_room_for(room):
    few = {**PARTS, VERTICES: PARTS[VERTICES][: N_BASE + room]}
    head = fitted(method="nc-fscil+cala", parts=few, adapter=QUICK)
    assert head.room == room
    assert head.add(*shots(6)).logits(X).isfinite().all()
    none = {**PARTS, VERTICES: PARTS[VERTICES][:N_BASE]}
    with pytest.raises(InputError, match="no room for another class"):
        fitted(method="nc-fscil+la", parts=none, adapter=QUICK)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps is 0: give a whole number"),
        ({"steps": 1.5}, "steps is 1.5"),
        ({"lr": 0.0}, "lr is 0.0: give a positive number"),
        ({"lr": "auto"}, "lr is 'auto'"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        made(**options)


def test_sizes_of_sessions_without_one_class():
    assert _one_less((0, 2, 1), 0) == (0, 1, 1)
    assert _one_less((0, 2, 1), 2) == (0, 2)
    assert _one_less((1,), 0) == ()
