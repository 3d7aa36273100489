"""The graph's formulas beside the head's own, and heads that the graph cannot follow."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from cala.core.adapters import INPUTS
from cala.errors import InputError
from cala.export.export import check_tail
from cala.export.modules import ADAPTER_FORMULAS, Tail, unit_length
from cala.heads import BaseData, make_head
from cala.heads.nearest_mean import NearestMean
from problems import blobs
from refusals import refused

X, Y = blobs(14, 12, 7)
X = X.astype(np.float32)
BASE = Y < 11


def fitted(method, **options):
    head = make_head(method, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return head.fit_base(BaseData(X[BASE], Y[BASE]))


def rows_of(head, shots):
    """What the head and the graph append for shots (K, d) of a new class."""
    tail = Tail(head, mirrored=False)
    check_tail(tail, head)
    with torch.no_grad():
        found = tail.new_class(tail.metric(torch.from_numpy(shots)))
    return [array.numpy() for array in found], head.new_row(head.embed(shots))


QUICK = {"episodes": 4, "heldout_episodes": 2, "epochs": 2, "steps": 20, "lr": 0.05}
KINDS = [
    ("nearest-mean", {}),
    ("nearest-mean", {"metric": "whitened"}),
    ("la", {}),
    ("cala-plus", {}),
    ("cala-plus", {"metric": "cosine"}),
    ("teen+cala-plus", {"alpha": 0.3, "tau": 4.0}),
    *(("cala", {"adapter": {**QUICK, "inputs": name, "tau": 3.0}}) for name in INPUTS),
    ("cala", {"adapter": {**QUICK, "hidden": (5,)}}),
    ("cala", {"adapter": {**QUICK, "clamp": False}}),
    ("cala-plus", {"adapter": {"clamp": False}}),
]


@pytest.mark.parametrize(("method", "options"), KINDS)
@pytest.mark.parametrize("k", [1, 2, 12])
def test_every_formula(method, options, k):
    head = fitted(method, **options)
    if head.adapted:
        head.set_operating_point(delta=0.25)
    (weight, bias), expected = rows_of(head, X[Y == 12][:k])
    np.testing.assert_allclose(weight, expected[0], atol=1e-5)
    np.testing.assert_allclose(bias, expected[1], atol=1e-5)
    assert not head.adapted or bias != 0.25


class Shorter(NearestMean):
    """Its new classes lean towards a direction of their own."""

    name = "shorter"

    def new_prototype(self, unit):
        return super().new_prototype(unit) + 0.1


class Told(Shorter):
    def torch_prototype(self, mean):
        return mean + 0.1


class Bent(NearestMean):
    name = "bent"

    def embed(self, features):
        return super().embed(features**3)


@pytest.mark.parametrize("kind", [Shorter, Bent])
def test_heads_with_formulas_of_their_own_are_refused(kind):
    head = kind().fit_base(BaseData(X[BASE], Y[BASE]))
    with refused(kind.name, code="no_onnx_form"):
        rows_of(head, X[:3])


def test_unless_they_give_it():
    head = Told().fit_base(BaseData(X[BASE], Y[BASE]))
    (weight, _), expected = rows_of(head, X[Y == 12][:5])
    np.testing.assert_allclose(weight, expected[0], atol=1e-5)


def test_savc_with_several_views_and_with_fine_tuning():
    one = fitted("savc")
    (weight, _), expected = rows_of(one, X[:3])
    np.testing.assert_allclose(weight, expected[0], atol=1e-5)
    with pytest.raises(InputError) as caught:
        rows_of(fitted("savc", views=7), X[:3])
    assert caught.value.code == "no_onnx_form"
    with refused(field="fine_tune", code="not_linear"):
        rows_of(fitted("savc", fine_tune=2), X[:3])


def test_an_adapter_of_another_kind_is_refused(monkeypatch):
    head = fitted("la")
    monkeypatch.delitem(ADAPTER_FORMULAS, "scalar")
    with pytest.raises(InputError) as caught:
        Tail(head, mirrored=False)
    assert caught.value.code == "no_onnx_form"


def test_a_zero_vector_stays_zero():
    assert torch.equal(unit_length(torch.zeros(1, 3)), torch.zeros(1, 3))
