"""iCaRL*: rows tuned on the shots, against automatic differentiation, and the head around them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cala.core.cala import normalise
from cala.heads import make_head
from cala.heads.base_data import BaseData
from cala.systems.icarl_star import TEMPERATURE, distilled_rows
from problems import blobs
from refusals import refused

X, Y = blobs(6, 8, 5)
BASE = Y < 4


def tuning_loss(rows, before, shots, columns, anchors, scale):
    loss = F.cross_entropy(scale * shots @ rows.T, columns)
    student = (scale / TEMPERATURE * anchors @ rows[: len(before)].T).log_softmax(1)
    teacher = (scale / TEMPERATURE * anchors @ before.T).softmax(1)
    return loss + F.kl_div(student, teacher, reduction="batchmean")


def test_distilled_rows_follow_the_gradient_of_their_loss():
    """One step at a time against automatic differentiation."""
    rng = np.random.default_rng(0)
    start, shots, anchors = (normalise(rng.normal(size=(n, 5))) for n in (6, 8, 9))
    columns = rng.integers(4, 6, size=8)
    given = [torch.from_numpy(x) for x in (shots, columns, anchors)]
    rows, velocity = torch.from_numpy(start.copy()), torch.zeros(6, 5, dtype=torch.float64)
    for _ in range(5):
        rows.requires_grad_(True)
        loss = tuning_loss(rows, torch.from_numpy(start[:4]), *given, 7.0)
        (gradient,) = torch.autograd.grad(loss, rows)
        velocity = 0.9 * velocity + gradient
        rows = (rows - 0.01 * (gradient + 0.9 * velocity)).detach()
    found = distilled_rows(start, 4, shots, columns, anchors, scale=7.0, steps=5, lr=0.01)
    np.testing.assert_allclose(found, rows.numpy())
    assert not np.allclose(found, start)
    alone = distilled_rows(start, 4, shots, columns, anchors[:0], scale=7.0, steps=5, lr=0.01)
    assert np.abs(alone - found).max() > 1e-6


def test_without_steps_it_is_nearest_mean():
    data = BaseData(X[BASE], Y[BASE])
    head, plain = make_head("icarl-star", steps=0), make_head("nearest-mean")
    for one in (head, plain):
        one.fit_base(BaseData(X[BASE], Y[BASE])).add(X[~BASE], Y[~BASE])
    np.testing.assert_allclose(head.logits(X), plain.logits(X))
    unit = head.embed(X)
    np.testing.assert_allclose(head.unit_logits(unit, Y), plain.unit_logits(unit, Y))
    tuned = make_head("icarl-star").fit_base(data).add(X[~BASE], Y[~BASE])
    assert np.abs(tuned.logits(X) - plain.logits(X)).max() > 1e-3


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 2.5), ("lr", 0)],
)
def test_bad_options_are_named(name, value):
    with refused(repr(value), field=name):
        make_head("icarl-star", **{name: value})
