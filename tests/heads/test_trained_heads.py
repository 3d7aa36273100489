"""Heads of the systems with a base session of their own: ALICE, FACT, CEC, LIMIT."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cala.core.virtual import fused_logits
from cala.errors import InputError
from cala.heads import HEADS, make_head
from problems import blobs, random_parts

pytestmark = pytest.mark.filterwarnings("ignore::cala.errors.BaseQueryWarning")

N_BASE, DIM = 6, 8
X, Y = blobs(N_BASE + 2, 9, DIM)
BASE = N_BASE > Y
NEEDY = [name for name in HEADS if HEADS[name].needs_parts]


def fitted(name, x=X[BASE], y=Y[BASE], **options):
    return make_head(name, parts=random_parts(name, DIM), **options).fit_base(x, y)


def unit(x):
    return x / x.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("name", NEEDY)
def test_missing_parts_are_named(name):
    with pytest.raises(InputError, match=f"--method {name}.*--encoder {name}=DIR"):
        make_head(name).fit_base(X[BASE], Y[BASE])
    with pytest.raises(InputError, match="other embeddings than these, of 8 dimensions"):
        make_head(name, parts=random_parts(name, DIM + 1)).fit_base(X[BASE], Y[BASE])
    with pytest.raises(InputError, match="cosine metric, not in whitened"):
        make_head(name, metric="whitened", parts=random_parts(name, DIM))


@pytest.mark.parametrize("name", NEEDY)
def test_leaving_out_is_learning_without(name):
    """A base row that is left out is scored as by a head that never had it."""
    head = fitted(name, scale=7.0)
    embedded, own = head.embed(X[BASE]), Y[BASE]
    left = head.unit_logits(embedded, own)
    for row in (0, 13, 40):
        keep = torch.arange(len(own)) != row
        without = fitted(name, X[BASE][keep], Y[BASE][keep], scale=7.0)
        torch.testing.assert_close(left[row], without.logits(X[BASE][row : row + 1])[0])


def test_alice_takes_the_five_nearest_images():
    head = fitted("alice", scale=3.0)
    u = unit(X[BASE])
    for label in range(N_BASE):
        own = u[Y[BASE] == label]
        nearest = (own @ own.mean(0)).argsort(descending=True)[:5]
        torch.testing.assert_close(head.prototypes[label], own[nearest].mean(0))
    assert head.table.counts.tolist() == [5] * N_BASE
    head.add(X[~BASE][:4], Y[~BASE][:4])
    torch.testing.assert_close(head.prototypes[-1], unit(X[~BASE][:4]).mean(0))


def test_alice_leaves_out_what_it_took_and_nothing_else():
    head = fitted("alice", scale=3.0)
    embedded, own = head.embed(X[BASE]), Y[BASE]
    plain, left = head.unit_logits(embedded), head.unit_logits(embedded, own)
    changed = (plain != left).any(1)
    counts = torch.bincount(own[changed], minlength=N_BASE)
    assert counts.tolist() == [5] * N_BASE
    row = int(changed.nonzero()[0, 0])
    keep = torch.arange(len(own)) != row
    rest = unit(X[BASE][keep])[Y[BASE][keep] == own[row]]
    taken = [u for u in rest if (head._picked[own[row]] - u).abs().amax(1).min() < 1e-9]
    assert len(taken) == 4
    mean = torch.stack(taken).mean(0)
    expected = 3.0 * float(embedded[row] @ mean / mean.norm())
    assert float(left[row, own[row]]) == pytest.approx(expected)


def test_alice_fits_its_scale_on_rows_that_are_not_in_the_prototypes():
    x, y = blobs(8, 60, 12, spread=1.0)
    head = make_head("alice").fit_base(x, y)
    logits, columns = head.unit_logits(head.embed(x), y), y
    loss = [float(torch.nn.functional.cross_entropy(logits * f, columns)) for f in (0.7, 1, 1.4)]
    assert loss[1] < min(loss[0], loss[2])


def test_alice_with_fewer_images_than_five():
    x, y = blobs(3, 2, 4)
    head = make_head("alice").fit_base(x, y)
    plain = make_head("nearest-mean").fit_base(x, y)
    assert head.table.counts.tolist() == [2, 2, 2]
    torch.testing.assert_close(head.prototypes, plain.prototypes)


def test_fact_is_a_fusion_of_two_probabilities():
    head = fitted("fact", scale=5.0).add(X[~BASE][:3], Y[~BASE][:3])
    u = unit(X).numpy()
    protos = head.prototypes.numpy()
    protos /= np.linalg.norm(protos, axis=1, keepdims=True)  # each class by itself
    virtual = head.parts["virtual"].double().numpy()
    virtual /= np.linalg.norm(virtual, axis=1, keepdims=True)
    through, direct = (u @ virtual.T) @ (virtual @ protos.T), 5.0 * u @ protos.T
    expected = fused_logits(torch.from_numpy(through), torch.from_numpy(direct))
    torch.testing.assert_close(head.logits(X), expected)


@pytest.mark.parametrize("name", ["cec", "limit"])
def test_attention_reads_all_seen_prototypes(name):
    head = fitted(name)
    before = head.logits(X)
    head.add(X[~BASE][:3], Y[~BASE][:3])
    after = head.logits(X)
    assert head.scale == 16.0
    assert not torch.allclose(after[:, :N_BASE], before)
    weights = head.prototypes / head.prototypes.norm(dim=1, keepdim=True)
    torch.testing.assert_close(after, 16 * head._attention.cosines(weights, unit(X)))


@pytest.mark.parametrize("name", NEEDY)
def test_parts_survive_saving(name):
    head = fitted(name)
    again = HEADS[name].from_state(head.state())
    assert again.parts.keys() == head.parts.keys()
    torch.testing.assert_close(again.logits(X), head.logits(X), rtol=0, atol=0)
    assert again.blank().parts.keys() == head.parts.keys()
