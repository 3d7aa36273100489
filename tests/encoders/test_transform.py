"""From an image to an encoder's input."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

from cala.encoders import Transform
from cala.errors import InputError
from refusals import refused


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_normalise_by_hand():
    transform = Transform(2, 2, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0))
    image = noise(2, 2, 3)
    found = transform.normalise(transform.stack([image]))
    expected = (image / 255 - [0.1, 0.2, 0.3]) / [0.5, 0.25, 2.0]
    np.testing.assert_allclose(found[0].transpose(1, 2, 0), expected, atol=1e-5)
    assert found.flags.c_contiguous
    tensor = transform.normalise(torch.from_numpy(image[None]))
    assert np.array_equal(found, tensor.numpy())
    assert tensor.is_contiguous(memory_format=torch.channels_last)


def test_crop_is_the_middle():
    image = noise(6, 6, 3)
    np.testing.assert_array_equal(Transform(2, 6).prepare(image), image[2:4, 2:4])


def test_the_odd_pixel_is_cut_at_the_end():
    image = noise(7, 7, 3)
    np.testing.assert_array_equal(Transform(4, 7).prepare(image), image[1:5, 1:5])


def test_crop_keeps_the_aspect_and_squeeze_does_not():
    image = noise(40, 60, 3)
    picture = Image.fromarray(image)
    full = np.asarray(picture.resize((30, 20), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(Transform(16, 20).prepare(image), full[2:18, 7:23])
    full = np.asarray(picture.resize((20, 20), Image.Resampling.BICUBIC))
    squeezed = Transform(20, 20, fit="squeeze", filter="bicubic").prepare(image)
    np.testing.assert_array_equal(squeezed, full)


@pytest.mark.parametrize("shape", [(10, 400, 3), (400, 10, 3)])
def test_a_strip_gives_its_middle(shape):
    image = noise(*shape)
    tall = shape[0] > shape[1]
    size = (20, 800) if tall else (800, 20)
    full = np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR))
    middle = full[392:408, 2:18] if tall else full[2:18, 392:408]
    found = Transform(16, 20).prepare(image)
    assert np.abs(found.astype(int) - middle).max() <= 1


def test_a_very_long_strip_needs_little_memory():
    assert Transform(224, 256).prepare(noise(1, 60_000)).shape == (224, 224, 3)


def test_grey_images_get_three_channels():
    grey = noise(9, 7)
    transform = Transform(8, 8)
    colour = transform.prepare(np.stack([grey] * 3, axis=2))
    np.testing.assert_array_equal(transform.prepare(grey), colour)
    np.testing.assert_array_equal(transform.prepare(grey[:, :, None]), colour)
    stack = noise(3, 8, 8)
    assert transform.stack(stack).shape == (3, 8, 8, 3)


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((4, 4, 3)),
        noise(4, 4, 4),
        noise(4, 4, 2),
        noise(0, 4, 3),
        noise(4),
        noise(1, 4, 4, 3),
    ],
)
def test_other_arrays_are_refused(image):
    with refused(field="images"):
        Transform(4, 4).stack([image])


def test_stack_of_fitting_images_is_taken_as_it_is():
    images = noise(3, 8, 8, 3)
    np.testing.assert_array_equal(Transform(8, 8).stack(images), images)
    one_by_one = np.stack([Transform(8, 10).prepare(i) for i in images])
    assert np.array_equal(Transform(8, 10).stack(images), one_by_one)
    assert Transform(8, 8).stack(images[:0]).shape == (0, 8, 8, 3)
    assert Transform(8, 8).stack([]).shape == (0, 8, 8, 3)


def test_way_through_json():
    transform = Transform(8, 9, fit="squeeze", filter="lanczos")
    assert Transform.from_dict(json.loads(json.dumps(transform.as_dict()))) == transform


@pytest.mark.parametrize(
    "fields",
    [
        {"size": 9, "resize": 8},
        {"size": 0, "resize": 8},
        {"size": 8, "resize": 8, "std": (1.0, 0.0, 1.0)},
        {"size": 8, "resize": 8, "fit": "stretch"},
        {"size": 8, "resize": 8, "filter": "sharp"},
    ],
)
def test_bad_values(fields):
    with pytest.raises(InputError):
        Transform(**fields)
