"""Heads of the systems with a base session of their own: ALICE, FACT, CEC, LIMIT."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from cala.heads import HEADS, make_head
from cala.heads.base_data import BaseData
from cala.systems.fact import fused_logits
from problems import blobs, random_parts
from refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore::cala.errors.BaseQueryWarning")

N_BASE, DIM = 6, 8
X, Y = blobs(N_BASE + 2, 9, DIM)
BASE = N_BASE > Y
NEEDY = [name for name in HEADS if hasattr(HEADS[name], "part_shapes")]


def fitted(name, x=X[BASE], y=Y[BASE], **options):
    return make_head(name, parts=random_parts(name, DIM), **options).fit_base(BaseData(x, y))


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.mark.parametrize("name", NEEDY)
def test_missing_parts_are_named(name):
    one = dict(list(random_parts(name, DIM).items())[:1])
    lacking = [one, {}] if HEADS[name].traits.needs_parts else [one]
    for parts in lacking if len(random_parts(name, DIM)) > 1 else [{}]:
        with refused(name, field="parts", code="missing_parts") as caught:
            make_head(name, parts=parts).fit_base(BaseData(X[BASE], Y[BASE]))
        assert f"--encoder {name}=DIR" in caught.value.fix
    with refused(name, "8 dimensions", field="parts", code="other_parts"):
        make_head(name, parts=random_parts(name, DIM + 1)).fit_base(BaseData(X[BASE], Y[BASE]))
    with refused(name, "whitened", field="metric"):
        make_head(name, metric="whitened", parts=random_parts(name, DIM))


@pytest.mark.parametrize("name", NEEDY)
def test_leaving_out_is_learning_without(name):
    """A base row that is left out is scored as by a head that never had it."""
    head = fitted(name, scale=7.0)
    embedded, own = head.embed(X[BASE]), Y[BASE]
    left = head.unit_logits(embedded, own)
    for row in (0, 13, 40):
        keep = np.arange(len(own)) != row
        without = fitted(name, X[BASE][keep], Y[BASE][keep], scale=7.0)
        np.testing.assert_allclose(left[row], without.logits(X[BASE][row : row + 1])[0])


def test_alice_takes_the_five_nearest_images():
    head = fitted("alice", scale=3.0)
    u = unit(X[BASE])
    for label in range(N_BASE):
        own = u[Y[BASE] == label]
        nearest = np.argsort(own @ own.mean(0))[::-1][:5]
        np.testing.assert_allclose(head.prototypes[label], own[nearest].mean(0))
    assert head.table.counts.tolist() == [5] * N_BASE
    head.add(X[~BASE][:4], Y[~BASE][:4])
    np.testing.assert_allclose(head.prototypes[-1], unit(X[~BASE][:4]).mean(0))


def test_alice_leaves_out_what_it_took_and_nothing_else():
    head = fitted("alice", scale=3.0)
    embedded, own = head.embed(X[BASE]), Y[BASE]
    plain, left = head.unit_logits(embedded), head.unit_logits(embedded, own)
    changed = (plain != left).any(1)
    counts = np.bincount(own[changed], minlength=N_BASE)
    assert counts.tolist() == [5] * N_BASE
    row = int(np.flatnonzero(changed)[0])
    keep = np.arange(len(own)) != row
    rest = unit(X[BASE][keep])[Y[BASE][keep] == own[row]]
    taken = [u for u in rest if np.abs(head._picked[own[row]] - u).max(1).min() < 1e-9]
    assert len(taken) == 4
    mean = np.mean(taken, axis=0)
    expected = 3.0 * float(embedded[row] @ unit(mean))
    assert float(left[row, own[row]]) == pytest.approx(expected)


def test_alice_fits_its_scale_on_rows_that_are_not_in_the_prototypes():
    x, y = blobs(8, 60, 12, spread=1.0)
    head = make_head("alice").fit_base(BaseData(x, y))
    logits, columns = torch.tensor(head.unit_logits(head.embed(x), y)), torch.tensor(y)
    loss = [float(torch.nn.functional.cross_entropy(logits * f, columns)) for f in (0.7, 1, 1.4)]
    assert loss[1] < min(loss[0], loss[2])


def test_alice_with_fewer_images_than_five():
    x, y = blobs(3, 2, 4)
    head = make_head("alice").fit_base(BaseData(x, y))
    plain = make_head("nearest-mean").fit_base(BaseData(x, y))
    assert head.table.counts.tolist() == [2, 2, 2]
    np.testing.assert_allclose(head.prototypes, plain.prototypes)


def test_fact_is_a_fusion_of_two_probabilities():
    head = fitted("fact", scale=5.0).add(X[~BASE][:3], Y[~BASE][:3])
    u = unit(X)
    protos = unit(head.prototypes)  # each class by itself
    virtual = unit(head.parts["virtual"].astype(float))
    through, direct = (u @ virtual.T) @ (virtual @ protos.T), 5.0 * u @ protos.T
    np.testing.assert_allclose(head.logits(X), fused_logits(through, direct))


@pytest.mark.parametrize("name", ["cec", "limit"])
def test_attention_reads_all_seen_prototypes(name):
    head = fitted(name)
    before = head.logits(X)
    head.add(X[~BASE][:3], Y[~BASE][:3])
    after = head.logits(X)
    assert head.scale == 16.0
    assert not np.allclose(after[:, :N_BASE], before)
    weights = unit(head.prototypes)
    expected = head._attention.cosines(torch.from_numpy(weights), torch.from_numpy(unit(X)))
    np.testing.assert_allclose(after, 16 * expected.numpy())


@pytest.mark.parametrize("name", NEEDY)
def test_parts_survive_saving(name):
    head = fitted(name)
    again = HEADS[name].from_state(head.state())
    assert again.parts.keys() == head.parts.keys()
    assert np.array_equal(again.logits(X), head.logits(X))
    assert again.blank().parts.keys() == head.parts.keys()


@pytest.mark.parametrize("name", NEEDY)
def test_threads_read_while_forks_learn(name):
    head = fitted(name)
    embedded, own = head.embed(X[BASE]), Y[BASE]
    shots, labels = X[~BASE][:3], Y[~BASE][:3]

    def work(fork):
        return head.unit_logits(embedded, own), fork.add(shots, labels).logits(X)

    expected = work(head.fork())
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(work, [head.fork() for _ in range(8)]):
            for one, other in zip(found, expected, strict=True):
                assert np.array_equal(one, other)


@pytest.mark.parametrize("name", NEEDY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_in_and_arrays_out(name, dtype):
    """Whatever the precision of the parts, logits have that of the embeddings."""
    parts = {k: v.astype(np.float16) for k, v in random_parts(name, DIM).items()}
    for array in parts.values():
        array.flags.writeable = False
    head = make_head(name, parts=parts).fit_base(BaseData(X[BASE].astype(dtype), Y[BASE]))
    head.add(X[~BASE], Y[~BASE])
    logits = head.logits(X)
    assert (type(logits), logits.dtype) == (np.ndarray, dtype)
    assert all(isinstance(value, np.ndarray) for value in head.state()["tensors"].values())
    before = head.logits(X)
    logits += 1  # the caller's own
    assert np.array_equal(head.logits(X), before)
