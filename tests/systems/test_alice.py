"""Class fusion and the angular penalty of ALICE."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from cala.systems.alice import SCALE, AngularFusion, cosface_logits, fuse, fused_label, n_fused


@pytest.mark.parametrize("n_base", [2, 3, 5, 60])
def test_every_pair_has_a_label_of_its_own(n_base):
    pairs = torch.tensor(list(combinations(range(n_base), 2)))
    labels = fused_label(pairs[:, 0], pairs[:, 1], n_base)
    assert labels.tolist() == list(range(n_base, n_base + n_fused(n_base)))
    assert torch.equal(fused_label(pairs[:, 1], pairs[:, 0], n_base), labels)


def test_mixed_images_lie_between_their_parents():
    torch.manual_seed(0)
    labels = torch.arange(6).repeat_interleave(3)
    images = torch.eye(18)[:, None, :]  # each image tells itself
    mixed, targets = fuse(images, labels, 6)
    assert torch.equal(mixed[:18], images)
    assert torch.equal(targets[:18], labels)
    rest = mixed[18:, 0]
    assert 0 < len(rest) <= 4 * 18
    for shares, target in zip(rest, targets[18:].tolist(), strict=True):
        parents = shares.nonzero()[:, 0]
        assert len(parents) == 2
        assert float(shares.sum()) == pytest.approx(1)
        assert 0.4 <= float(shares[parents].min()) <= float(shares[parents].max()) <= 0.6 + 1e-6
        first, second = labels[parents]
        assert first != second
        assert int(fused_label(first, second, 6)) == target


def test_a_batch_of_one_class_is_not_mixed():
    images, labels = torch.randn(4, 3, 2, 2), torch.zeros(4, dtype=torch.long)
    mixed, targets = fuse(images, labels, 3)
    assert torch.equal(mixed, images)
    assert torch.equal(targets, labels)


def test_cosface_by_hand():
    cosines = torch.tensor([[0.9, 0.1, -0.2], [0.3, 0.5, 0.0]])
    found = cosface_logits(cosines, torch.tensor([0, 2]), scale=10.0, margin=0.25)
    torch.testing.assert_close(found, torch.tensor([[6.5, 1.0, -2.0], [3.0, 5.0, -2.5]]))
    usual = cosface_logits(cosines, torch.tensor([0, 2]))
    torch.testing.assert_close(usual[0], torch.tensor([15.0, 3.0, -6.0]))


def test_without_fusion_there_are_base_classes_only():
    class Flat(torch.nn.Module):
        dim = 12

        def forward(self, images):
            return images.flatten(1)

    torch.manual_seed(0)
    images, labels = torch.randn(12, 3, 2, 2), torch.arange(6) % 3
    for fusion, rows in ((True, 6), (False, 3)):
        model = AngularFusion(Flat(), 3, None, 3, fusion=fusion)
        assert len(model.weight) == rows
        loss, logits = model(images, labels)
        assert logits.shape == (6, 3)
        assert bool(loss.isfinite())
    model.eval()
    expected = cosface_logits(model.logits(images) / SCALE, labels.repeat(2))
    both = torch.nn.functional.cross_entropy(expected, labels.repeat(2))
    torch.testing.assert_close(model(images, labels)[0], both)
