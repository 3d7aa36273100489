"""Fantasy views, virtual classes and the vote of the views (SAVC)."""

from __future__ import annotations

import numpy as np
import torch

from cala.encoders.views import MOST_VIEWS, fantasy, turned
from cala.systems.savc import (
    fantasies,
    fantasy_of_each,
    joint_labels,
    normalise_views,
    over_views,
)
from refusals import refused

IMAGES = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(0))


def test_turns_are_those_of_torch():
    for quarters in range(4):
        assert torch.equal(turned(IMAGES, quarters), IMAGES.rot90(quarters, (2, 3)))


def test_the_views_of_each_published_number():
    assert torch.equal(fantasy(IMAGES, 0), IMAGES)
    assert torch.equal(fantasy(IMAGES, 1), IMAGES.rot90(2, (2, 3)))
    four = {tuple(fantasy(IMAGES, view).flatten().tolist()) for view in range(4)}
    assert four == {tuple(IMAGES.rot90(k, (2, 3)).flatten().tolist()) for k in range(4)}
    assert torch.equal(fantasy(IMAGES, 4), IMAGES[:, [1, 2, 0]])
    every = {tuple(fantasy(IMAGES, view).flatten().tolist()) for view in range(MOST_VIEWS)}
    assert len(every) == MOST_VIEWS == 12
    with refused(12, field="view"):
        fantasy(IMAGES, 12)


def test_fewer_views_are_the_first_ones():
    twelve = fantasies(IMAGES, 12)
    for views in (1, 2, 4):
        assert torch.equal(fantasies(IMAGES, views), twelve[: 2 * views])


def test_each_image_in_a_view_of_its_own():
    views = torch.tensor([7, 1])
    found = fantasy_of_each(IMAGES, views)
    for row, view in enumerate(views.tolist()):
        assert torch.equal(found[row : row + 1], fantasy(IMAGES[row : row + 1], view))


def test_each_view_is_asked_for_its_own_class():
    """Three images, four classes, two views: logit of image i, view m, class c, view k."""
    joint = torch.randn(2, 3, 4, 2)
    found = over_views(joint.reshape(6, 8), 2)
    expected = (joint[0, :, :, 0] + joint[1, :, :, 1]) / 2
    torch.testing.assert_close(found, expected)
    labels = torch.tensor([2, 0, 3])
    own = joint_labels(labels, 2).reshape(2, 3)
    assert own.tolist() == [[4, 0, 6], [5, 1, 7]]


def test_rows_of_views_meet_at_their_mean_cosine():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 8)), rng.normal(size=(3, 8))
    found = (normalise_views(a, 4) * normalise_views(b, 4)).sum(1)
    lengths = [np.linalg.norm(x.reshape(3, 4, 2), axis=2) for x in (a, b)]
    apart = (a * b).reshape(3, 4, 2).sum(2) / lengths[0] / lengths[1]
    np.testing.assert_allclose(found, apart.mean(1))
    np.testing.assert_allclose(
        normalise_views(a, 1), a / np.linalg.norm(a, axis=1, keepdims=True), rtol=1e-15
    )
    assert normalise_views(np.zeros((1, 4)), 2).tolist() == [[0.0] * 4]
    assert normalise_views(np.zeros((0, 4), np.float32), 2).shape == (0, 4)
    assert normalise_views(a.astype(np.float32), 4).dtype == np.float32
