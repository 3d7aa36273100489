"""SAVC's head: views that vote, and new rows that learn from their shots."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cala.encoders.views import VIEWS
from cala.heads import make_head, restore_head
from cala.heads.base_data import BaseData
from cala.systems.savc import normalise_views, tuned_rows
from problems import blobs, first_of
from refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore::cala.errors.BaseQueryWarning")

N_BASE, DIM, M = 5, 6, 3
X, Y = blobs(N_BASE + 3, 8, DIM * M, spread=1.0)
BASE = N_BASE > Y
QUICK = {"episodes": 4, "heldout_episodes": 2, "epochs": 2, "steps": 5}


def fitted(name="savc", **options):
    options = {"views": M, **options} if name.startswith("savc") else options
    return make_head(name, **options).fit_base(BaseData(X[BASE], Y[BASE]))


def shots(label, k=3):
    rows = first_of(Y, [label], k)
    return X[rows], Y[rows]


def in_views(x):
    return unit(x.reshape(len(x), M, DIM))


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def cross_entropy(logits, columns):
    return float(F.cross_entropy(torch.from_numpy(logits), torch.from_numpy(columns)))


def test_each_view_meets_the_prototype_of_its_own():
    head = fitted(scale=5.0).add(*shots(6)).add(*shots(5, 1))
    views = in_views(X)
    known = [*(views[c == Y] for c in range(N_BASE)), in_views(shots(6)[0]), in_views(shots(5)[0])]
    known[-1] = known[-1][:1]
    means = np.stack([unit(own.mean(0)) for own in known])
    expected = 5.0 * np.einsum("nmd,cmd->ncm", views, means).mean(2)
    assert head.classes == (0, 1, 2, 3, 4, 6, 5)
    np.testing.assert_allclose(head.logits(X), expected)


def test_one_view_is_nearest_mean():
    for views in (1, "auto"):
        one, plain = fitted(views=views), fitted("nearest-mean")
        assert one.scale == plain.scale
        assert np.array_equal(one.add(*shots(6)).logits(X), plain.add(*shots(6)).logits(X))
    several = fitted(scale=1.0).logits(X)
    assert not np.allclose(several, fitted("nearest-mean", scale=1.0).logits(X), atol=1e-3)


def test_how_long_a_view_is_does_not_matter():
    factors = np.repeat(0.1 + np.arange(M), DIM)
    longer = make_head("savc", views=M).fit_base(BaseData(X[BASE] * factors, Y[BASE]))
    np.testing.assert_allclose(longer.logits(X * factors), fitted().logits(X))


def test_leaving_out_is_learning_without():
    head = fitted(scale=7.0)
    left = head.unit_logits(head.embed(X[BASE]), Y[BASE])
    for row in (0, 13, 39):
        keep = np.arange(BASE.sum()) != row
        data = BaseData(X[BASE][keep], Y[BASE][keep])
        without = make_head("savc", views=M, scale=7.0).fit_base(data)
        np.testing.assert_allclose(left[row], without.logits(X[BASE][row : row + 1])[0])


def test_the_linear_form():
    head = fitted().add(*shots(6))
    weights, bias = head.linear_form()
    np.testing.assert_allclose(head.embed(X) @ weights.T + bias, head.logits(X))
    row, _ = head.new_row(head.embed(shots(7)[0]))
    np.testing.assert_allclose(row, head.add(*shots(7)).linear_form()[0][-1:])


@pytest.mark.parametrize("method", ["savc+la", "savc+cala", "savc+cala-plus"])
def test_adapters_train_on_its_logits(method):
    head = fitted(method, adapter=QUICK).add(*shots(6)).add(*shots(7, 1))
    assert head.host.views == M
    assert np.isfinite(head.logits(X)).all()
    state = head.state()
    assert np.array_equal(restore_head(state).logits(X), head.logits(X))


def test_fine_tuning_moves_new_rows_and_no_other():
    plain, head = fitted(scale=16.0), fitted(scale=16.0, fine_tune=10)
    assert np.array_equal(head.logits(X), plain.logits(X))
    for label in (6, 5):
        before = head.logits(X)
        head.add(*shots(label, 5))
        plain.add(*shots(label, 5))
        after = head.logits(X)
        assert np.array_equal(after[:, :-1], before)
        assert not np.allclose(after[:, -1], plain.logits(X)[:, -1])
        x, own = shots(label, 5)
        columns = np.full_like(own, len(head.classes) - 1)
        assert cross_entropy(head.logits(x), columns) < cross_entropy(plain.logits(x), columns)
    base = head.logits(X)[:, :N_BASE]
    head.add(*shots(0))  # more shots of a base class: its mean, and nothing is tuned
    plain.add(*shots(0))
    np.testing.assert_allclose(head.logits(X)[:, 0], plain.logits(X)[:, 0])
    assert np.array_equal(head.logits(X)[:, 1:N_BASE], base[:, 1:])
    assert head.fork().forget(5).classes == (0, 1, 2, 3, 4, 6)


@pytest.mark.parametrize("views", [1, M])
def test_fine_tuning_against_gradients_by_torch(views):
    rng = np.random.default_rng(0)
    rows, shots = (normalise_views(rng.normal(size=(n, DIM * M)), views) for n in (6, 7))
    own, moving = np.array([4, 2, 4, 4, 2, 4, 2]), np.array([2, 4])
    found = tuned_rows(shots, own, rows, moving, scale=9.0, views=views, epochs=8)

    def in_views(x):
        return F.normalize(x.unflatten(1, (views, -1)), dim=2).flatten(1) / views**0.5

    moved = torch.tensor(rows[moving], requires_grad=True)
    optimiser = torch.optim.SGD([moved], lr=0.1, momentum=0.9)
    for _ in range(8):
        weights = torch.tensor(rows).index_copy(0, torch.tensor(moving), in_views(moved))
        loss = F.cross_entropy(9.0 * torch.tensor(shots) @ weights.T, torch.tensor(own))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    np.testing.assert_allclose(found, in_views(moved.detach()).numpy(), rtol=1e-10)
    assert not np.allclose(found, rows[moving], atol=0.01)


def test_a_tuned_head_is_saved_as_it_is():
    head = fitted(fine_tune=3).add(*shots(6)).add(*shots(5))
    again = restore_head(head.state())
    assert (again.views, again.fine_tune) == (M, 3)
    assert np.array_equal(again.logits(X), head.logits(X))
    assert np.array_equal(again.add(*shots(7)).logits(X), head.add(*shots(7)).logits(X))
    weights, bias = head.linear_form()
    np.testing.assert_allclose(head.embed(X) @ weights.T + bias, head.logits(X))
    with refused(field="fine_tune", code="not_linear"):
        head.new_row(head.embed(shots(7)[0]))


def test_parts_tell_the_number_of_views():
    parts = {VIEWS: np.array([3.0], np.float32)}
    assert make_head("savc", parts=parts).views == 3
    assert make_head("savc", parts=parts, views=1).views == 1
    assert make_head("savc+la", parts={}).host.views == 1


@pytest.mark.parametrize(
    ("options", "field", "named"),
    [
        ({"views": 0}, "views", 0),
        ({"views": 2.5}, "views", 2.5),
        ({"parts": {VIEWS: np.ones(2)}}, "views", "[1.0, 1.0]"),
        ({"fine_tune": -1}, "fine_tune", -1),
        ({"fine_tune": 0.5}, "fine_tune", 0.5),
        ({"fine_tune": float("inf")}, "fine_tune", "inf"),
        ({"metric": "whitened"}, "metric", "whitened"),
    ],
)
def test_bad_options(options, field, named):
    with refused(named, field=field):
        make_head("savc", **options)


def test_dimensions_that_views_cannot_share():
    with refused(18, "4 views", field="X", code="wrong_dimensions"):
        make_head("savc", views=4).fit_base(BaseData(X[BASE], Y[BASE]))
