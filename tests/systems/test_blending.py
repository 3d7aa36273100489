"""Mixup and CutMix, pixel by pixel."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cala.systems.nc_fscil import blend, cutmix, mixup

OTHER = torch.tensor([2, 0, 1])
#: Image i has the value i everywhere.
IMAGES = torch.arange(3.0)[:, None, None, None].expand(3, 3, 6, 10).contiguous()


def test_mixup_is_both_everywhere():
    found = mixup(IMAGES, OTHER, 0.75)
    torch.testing.assert_close(found.images[:, 0, 0, 0], torch.tensor([0.5, 0.75, 1.75]))
    assert found.images.shape == IMAGES.shape
    assert found.share == 0.75


@given(st.floats(0, 1), st.floats(0, 0.999), st.floats(0, 0.999))
def test_cutmix_takes_a_box_and_counts_what_is_left(share, down, right):
    before = IMAGES.clone()
    found = cutmix(IMAGES, OTHER, share, down, right)
    own = found.images == IMAGES
    assert found.share == pytest.approx(float(own[0].float().mean()))
    for image, other in enumerate(OTHER.tolist()):
        assert ((found.images[image] == other) | own[image]).all()
        place = (~own[image, 0]).nonzero()
        if len(place):  # a whole box
            sides = place.amax(0) - place.amin(0) + 1
            assert int(sides.prod()) == len(place)
    assert found.share >= share - 1e-9  # borders only make a box smaller
    assert torch.equal(IMAGES, before)


def test_a_box_in_the_middle_has_its_share():
    assert cutmix(IMAGES, OTHER, 0.75, 0.5, 0.5).share == pytest.approx(1 - 2 * 4 / 60)
    assert cutmix(IMAGES, OTHER, 0.0, 0.5, 0.5).share == 0.0
    assert cutmix(IMAGES, OTHER, 1.0, 0.5, 0.5).share == 1.0


def test_kinds_are_drawn_from_torchs_own_generator():
    torch.manual_seed(0)
    first = [blend(IMAGES) for _ in range(400)]
    torch.manual_seed(0)
    assert all(torch.equal(b.images, blend(IMAGES).images) for b in first)
    plain = sum(torch.equal(b.images, IMAGES) for b in first) / len(first)
    boxes = sum(b.share < 1 and set(b.images.unique().tolist()) <= {0, 1, 2} for b in first)
    assert 0.14 < plain < 0.40  # a fifth, and those whose box or partner changes nothing
    assert 0.25 < boxes / len(first) < 0.45
