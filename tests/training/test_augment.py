"""Augmentation of whole batches against one image at a time, done by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cala.training.augment import (
    CHANGES,
    Augmentation,
    ColourJitter,
    Cutout,
    Flip,
    Grey,
    PadCrop,
    Policy,
    ResizedCrop,
    Sometimes,
)

OPERATIONS = [PadCrop(4), Flip(), ResizedCrop(12), ColourJitter(), Cutout(6), Policy(2), Grey()]
OPERATIONS.append(Sometimes(ColourJitter(), 0.5))


def photos(n: int = 6, side: int = 16, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, side, side, 3), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: type(o).__name__)
def test_every_operation_treats_each_image_alone(operation):
    images = photos()
    u = torch.rand(6, operation.draws, generator=torch.Generator().manual_seed(1))
    whole = operation(images, u)
    assert whole.dtype == torch.uint8
    assert whole.shape[0] == 6
    for i in range(6):
        alone = operation(images[i : i + 1], u[i : i + 1])
        assert (whole[i].int() - alone[0].int()).abs().max() <= 1  # rounding of a sum
    assert torch.equal(operation(images, u), whole)


def test_crop_by_hand():
    images = photos(3)
    u = torch.tensor([[0.0, 0.999], [0.5, 0.5], [0.999, 0.0]])
    out = PadCrop(4)(images, u)
    padded = np.pad(images.numpy(), ((0, 0), (4, 4), (4, 4), (0, 0)))
    for i, (top, left) in enumerate([(0, 8), (4, 4), (8, 0)]):
        np.testing.assert_array_equal(out[i], padded[i, top : top + 16, left : left + 16])


def test_flip_and_cutout_by_hand():
    images = photos(2)
    out = Flip()(images, torch.tensor([[0.2], [0.7]]))
    assert torch.equal(out[0], images[0].flip(1))
    assert torch.equal(out[1], images[1])
    hole = Cutout(4)(images + 1, torch.tensor([[0.0, 0.0], [0.5, 0.5]])) == 0
    assert hole[0, :2, :2].all()
    assert hole[1, 6:10, 6:10].all()
    assert hole[1].sum() <= 16 * 3 + 10


def test_sometimes_and_grey_by_hand():
    images = photos(3)
    out = Sometimes(Grey(), 0.4)(images, torch.tensor([[0.39], [0.4], [0.9]]))
    luma = (images[0].float() * torch.tensor([0.299, 0.587, 0.114])).sum(-1).round()
    assert torch.equal(out[0].float(), luma[..., None].expand(16, 16, 3))
    assert torch.equal(out[1:], images[1:])


def test_the_whole_image_is_the_resized_crop_of_area_1():
    images = photos(2)
    u = torch.tensor([[1.0, 0.5, 0.3, 0.8]]).expand(2, -1)
    assert torch.equal(ResizedCrop(16, (1.0, 1.0))(images, u), images)
    wide = torch.zeros(1, 10, 40, 3, dtype=torch.uint8)
    wide[:, :, 20:] = 200
    part = ResizedCrop(8, (0.25, 0.25), (1.0, 1.0))(wide, torch.tensor([[0.5, 0.5, 1.0, 0.5]]))
    assert (part == 200).all()  # the right end, a square of 10×10


def test_jitter_keeps_grey_and_stays_in_range():
    images = torch.full((2, 4, 4, 3), 100, dtype=torch.uint8)
    out = ColourJitter(0.4, 0, 0)(images, torch.tensor([[1.0, 0, 0], [0.0, 0, 0]]))
    assert out[0].unique().tolist() == [140]
    assert out[1].unique().tolist() == [60]


@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_the_policy_do_nothing_at_strength_0(name):
    images = photos(3).float()
    if name == "autocontrast":  # has no strength
        images[:, 0, 0], images[:, 0, 1] = 0, 255
    out = CHANGES[name](images, torch.zeros(3, 1, 1, 1))
    torch.testing.assert_close(out, images, atol=0.02, rtol=0)


@given(st.integers(0, 2**31), st.integers(1, 5))
def test_a_batch_can_be_split(seed, size):
    augmentation = Augmentation((PadCrop(2), Flip(), ColourJitter(), Cutout(3)))
    images = photos(6, 8)
    u = augmentation.draw(6, torch.Generator().manual_seed(seed))
    parts = zip(images.split(size), u.split(size), strict=True)
    split = torch.cat([augmentation(i, v) for i, v in parts])
    assert (augmentation(images, u).int() - split.int()).abs().max() <= 1


def test_the_place_of_a_resized_crop_follows_its_own_draws():
    images = torch.zeros(1, 16, 16, 3, dtype=torch.uint8)
    images[:, 8:, :8], images[:, :8, 8:], images[:, 8:, 8:] = 50, 100, 150  # by quarter
    quarter = ResizedCrop(8, (0.25, 0.25), (1.0, 1.0))
    for across, down, value in ((0.0, 0.0, 0), (0.0, 1.0, 50), (1.0, 0.0, 100), (1.0, 1.0, 150)):
        part = quarter(images, torch.tensor([[0.5, 0.5, across, down]]))
        assert part.unique().tolist() == [value]
