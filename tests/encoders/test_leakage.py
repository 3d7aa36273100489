"""Classes that trained an encoder do not arrive as new ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cala.encoders.encode import encode_set
from cala.encoders.leakage import seen_classes, stated_classes
from encoders.tiny import counting_encoder, noise_set
from refusals import refused

ABOUT = {"dataset": "noise", "classes": ["class 0", "class 1", "class 2"]}


def test_novel_classes_that_trained_the_encoder_are_refused_before_anything_is_encoded():
    images, encoder = noise_set([4] * 5, [1] * 5), counting_encoder(about=ABOUT)
    with refused("(class 2)", field="base", code="leakage"):
        encode_set(images, encoder, base=range(2), pairs=0)
    assert encoder.forward.images == 0
    encode_set(images, encoder, base=range(3), pairs=0)
    encode_set(images, encoder, base=range(2), novel=[3, 4], pairs=0)
    found = encode_set(images, encoder, base=range(2), novel=(), pairs=0)
    assert found.provenance["seen"] == ABOUT["classes"]
    assert stated_classes(found.provenance) == tuple(ABOUT["classes"])


def test_many_names_are_cut():
    images = noise_set([4] * 9, [1] * 9)
    encoder = counting_encoder(about={"dataset": "noise", "classes": list(images.classes)})
    with refused("(class 1, ", ", class 5 and 3 more)", code="leakage"):
        encode_set(images, encoder, base=[0], pairs=0)


def test_a_renamed_class_is_known_by_its_images():
    images = noise_set([4] * 4, [1] * 4)
    digests = images.train.digests()
    renamed = replace(images, classes=("a", "b", "c", "d"))
    encoder = counting_encoder(about=ABOUT, trained=frozenset(d[:32] for d in digests[:12]))
    assert seen_classes(renamed, encoder) == ("a", "b", "c")


def test_a_copy_of_a_base_image_makes_no_class_seen():
    images = noise_set([4] * 4, [1] * 4)
    images.train.pixels.array[13] = images.train.pixels.array[1]
    digests = images.train.digests()
    encoder = counting_encoder(about=ABOUT, trained=frozenset(d[:32] for d in digests[:12]))
    assert seen_classes(images, encoder) == ("class 0", "class 1", "class 2")


@pytest.mark.parametrize(
    "options",
    [
        {"about": ABOUT, "pretrained": True},
        {"about": {**ABOUT, "dataset": "another"}},
        {"about": {"dataset": "noise"}},
        {"about": {}},
    ],
)
def test_what_is_not_known_is_not_refused(options):
    images, encoder = noise_set([4] * 4, [1] * 4), counting_encoder(**options)
    assert seen_classes(images, encoder) == ()
    encode_set(images, encoder, base=range(2), pairs=0)


def test_what_a_file_states():
    assert stated_classes(None) == ()
    assert stated_classes({"about": 3, "dataset": "noise"}) == ()
    assert stated_classes({"about": ABOUT, "dataset": "noise"}) == tuple(ABOUT["classes"])
    assert stated_classes({"about": ABOUT, "dataset": "other"}) == ()
    assert stated_classes({"about": ABOUT, "dataset": "noise", "seen": ["x"]}) == ("x",)
