"""An encoder in one file: the way out and back, and files that are not whole."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cala.encoders import ARCHITECTURES, Transform
from cala.encoders.torch_module import from_module, module_fingerprint
from cala.encoders.weights import halve_encoder, load_encoder_file, save_encoder
from cala.errors import DamagedFile, InputError
from refusals import refused

TRANSFORM = Transform(size=32, resize=36, fit="squeeze")


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    return ARCHITECTURES["resnet20"]().eval()


@pytest.fixture
def path(module, tmp_path):
    path = tmp_path / "encoder.safetensors"
    save(path, module)
    return path


def save(path, module, **more):
    save_encoder(path, module, architecture="resnet20", transform=TRANSFORM, **more)


def test_identity(module, tmp_path):
    path = tmp_path / "e.safetensors"
    save(path, module, scale=16.0, holdout=frozenset({"a", "b"}), about={"epochs": 3})
    found = load_encoder_file(path, name="mine")
    assert (found.name, found.dim, found.transform) == ("mine", 64, TRANSFORM)
    assert (found.scale, found.holdout, found.about) == (16.0, {"a", "b"}, {"epochs": 3})
    assert not found.pretrained
    direct = from_module("x", module, TRANSFORM, architecture="resnet20")
    assert found.fingerprint == direct.fingerprint
    images = np.random.default_rng(0).integers(0, 256, (3, 40, 32, 3), dtype=np.uint8)
    np.testing.assert_array_equal(found(images), direct(images))
    assert list(tmp_path.iterdir()) == [path]


def test_half_precision(module, path, tmp_path):
    half = tmp_path / "half.safetensors"
    save(half, module, half=True)
    assert half.stat().st_size < 0.6 * path.stat().st_size
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    full, found = load_encoder_file(path), load_encoder_file(half)
    assert found.fingerprint != full.fingerprint
    np.testing.assert_allclose(found(images), full(images), rtol=0.02, atol=0.02)


def test_key_depends_on_the_transform(module):
    one = from_module("x", module, TRANSFORM, architecture="a")
    two = from_module("x", module, Transform(size=32, resize=32), architecture="a")
    assert one.fingerprint == two.fingerprint
    assert one.key != two.key


def test_fingerprint():
    module = torch.nn.BatchNorm2d(3)
    first = module_fingerprint(module, "a")
    assert module_fingerprint(module, "b") != first
    module.num_batches_tracked += 1
    assert module_fingerprint(module, "a") == first
    module.bias.data[0] = 1e-7
    assert module_fingerprint(module, "a") != first
    assert module_fingerprint(module.bfloat16(), "a") != first


def test_flipped_bytes_are_noticed(path):
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    header = int.from_bytes(content[:8], "little") + 8
    places = [*range(8), *rng.integers(8, header, 20), *rng.integers(header, len(content), 20)]
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 0x21
        path.write_bytes(changed)
        with pytest.raises(InputError):
            load_encoder_file(path)


def test_a_file_from_before_there_were_kinds_is_read(module, path, tmp_path):
    old = tmp_path / "old.safetensors"
    tensors = {n: t.contiguous() for n, t in module.state_dict().items() if "num_batches" not in n}
    save_file(tensors, old, metadata={"cala": json.dumps(meta(scale=16.0, about={"epochs": 3}))})
    found = load_encoder_file(old)
    assert found.fingerprint == load_encoder_file(path).fingerprint
    assert (found.scale, found.about) == (16.0, {"epochs": 3})
    half = tmp_path / "half.safetensors"
    halve_encoder(old, half)
    assert load_encoder_file(half).about == {"epochs": 3}


def test_cut_short(path):
    content = path.read_bytes()
    for end in (0, 4, 8, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:end])
        with pytest.raises(DamagedFile):
            load_encoder_file(path)
    with pytest.raises(InputError) as caught:
        load_encoder_file(path.with_name("gone"))
    assert caught.value.code == "missing_file"


def meta(**changes):
    fields = {
        "format": 1, "architecture": "resnet20", "transform": TRANSFORM.as_dict(), "scale": None,
        "holdout": [], "about": {},
    }  # fmt: skip
    return {**fields, **changes}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "other_kind"),
        ("{}", "other_kind"),
        ("[]", "other_kind"),
        ("3", "other_kind"),
        ("not JSON", "other_kind"),
        (json.dumps(meta(format=2)), "other_kind"),
        (json.dumps(meta(architecture="resnet99")), "bad_header"),
        (json.dumps(meta(architecture=None)), "bad_header"),
        (json.dumps(meta(architecture=[])), "bad_header"),
        (json.dumps(meta(architecture="resnet12")), "other_weights"),
        (json.dumps(meta(transform={"size": 4})), "bad_header"),
        (json.dumps(meta(transform={**TRANSFORM.as_dict(), "colour": 1})), "bad_header"),
        (json.dumps(meta(transform=None)), "bad_header"),
        (json.dumps(meta(holdout=3)), "bad_header"),
        (json.dumps(meta(scale="large")), "bad_header"),
        (json.dumps({"format": 1}), "bad_header"),
    ],
)
def test_foreign_files(module, tmp_path, text, code):
    """The weights are right, what is said of them is not."""
    path = tmp_path / "x.safetensors"
    state = module.state_dict().items()
    tensors = {n: t.contiguous() for n, t in state if "num_batches" not in n}
    save_file(tensors, path, metadata=None if text is None else {"cala": text})
    with refused("x.safetensors", code=code):
        load_encoder_file(path)


def test_foreign_weights(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.zeros(2)}, path, metadata={"cala": json.dumps(meta())})
    with refused("x.safetensors", "resnet20", code="other_weights"):
        load_encoder_file(path)
