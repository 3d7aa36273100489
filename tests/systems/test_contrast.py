"""SAVC's contrast and its queue, against a slow version of the formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cala.systems.savc import EMPTY, KeyQueue, contrast


def unit(generator, *shape):
    return F.normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1)


def slow(anchors, keys, labels, queue, queue_labels, temperature):
    """One anchor, one positive at a time."""
    total = 0.0
    for anchor, key, label in zip(anchors, keys, labels, strict=True):
        there = [(k, q) for k, q in zip(queue, queue_labels, strict=True) if q != EMPTY]
        negatives = sum(math.exp(anchor @ k / temperature) for k, q in there if q != label)
        positives = [key, *(k for k, q in there if q == label)]
        each = [math.log(1 + negatives * math.exp(-(anchor @ p) / temperature)) for p in positives]
        total += sum(each) / len(positives)
    return total / len(labels)


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_the_formula(temperature):
    generator = torch.Generator().manual_seed(0)
    anchors, keys = unit(generator, 6, 4), unit(generator, 6, 4)
    labels = torch.tensor([0, 1, 2, 0, 3, 9])  # the queue has no key of class 9
    queue, queue_labels = unit(generator, 20, 4), torch.arange(20) % 4
    queue_labels[-3:] = EMPTY
    given = (anchors, keys, labels, queue, queue_labels)
    expected = slow(*(t.numpy() for t in given), temperature)
    assert float(contrast(*given, temperature)) == pytest.approx(expected, rel=1e-9)


def test_opposite_and_equal_vectors_stay_finite():
    anchors = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
    keys = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    queue, labels = keys.repeat(4, 1), torch.arange(8) % 2
    loss = contrast(anchors, keys, torch.tensor([0, 1]), queue, labels, temperature=1e-3)
    loss.backward()
    assert loss.isfinite()
    assert anchors.grad.isfinite().all()
    assert float(loss.detach()) > 500  # log(1 + e^{2000})


def test_an_empty_queue_costs_nothing():
    anchors = torch.eye(3, requires_grad=True)
    queue = KeyQueue(5, 3)
    assert queue.empty
    loss = contrast(anchors, torch.eye(3), torch.arange(3), queue.keys, queue.labels)
    loss.backward()
    assert float(loss.detach()) == 0
    assert torch.equal(anchors.grad, torch.zeros(3, 3))


def test_the_oldest_key_goes_first():
    queue = KeyQueue(5, 1)
    for start in (0, 3, 6):  # three, then three, then three again
        numbers = torch.arange(start, start + 3)
        queue.put(numbers[:, None].float(), numbers)
    assert queue.labels.tolist() == [5, 6, 7, 8, 4]
    assert queue.keys[:, 0].tolist() == [5, 6, 7, 8, 4]
    assert int(queue.place) == 4
    assert not queue.empty
    queue.put(torch.arange(10.0, 22.0)[:, None], torch.arange(10, 22))  # more than there is room
    assert sorted(queue.labels.tolist()) == [17, 18, 19, 20, 21]
    np.testing.assert_array_equal(queue.labels, queue.keys[:, 0])


def test_all_of_it_is_kept_in_a_checkpoint():
    queue = KeyQueue(4, 2)
    queue.put(torch.ones(3, 2), torch.arange(3))
    again = KeyQueue(4, 2)
    again.load_state_dict(queue.state_dict())
    for one in (queue, again):
        one.put(torch.zeros(2, 2), torch.tensor([7, 8]))
    assert again.labels.tolist() == queue.labels.tolist() == [8, 1, 2, 7]
    assert torch.equal(again.keys, queue.keys)
