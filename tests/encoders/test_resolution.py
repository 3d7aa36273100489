"""`size:S:NAME`: the same network on larger or smaller images."""

from __future__ import annotations

import numpy as np
import pytest

from cala.encoders import load_encoder
from cala.encoders.registry import located
from cala.errors import InputError
from encoders.tiny_models import size_model, write_onnx


@pytest.fixture
def file(tmp_path):
    size_model(tmp_path, 0)
    return tmp_path


def test_it_sees_more_pixels_with_the_same_weights(file):
    uris = (file, f"size:24:{file}")
    small, large = (load_encoder(uri, engine="torch") for uri in uris)
    assert (large.transform.size, large.transform.resize) == (24, 24)
    assert large.transform.mean == small.transform.mean
    image = np.random.default_rng(0).integers(0, 256, (1, 60, 80, 3), dtype=np.uint8)
    expected = small.forward(large.inputs(image))  # the network, on the larger input
    assert np.array_equal(large(image), expected)
    assert not np.allclose(large(image), small(image), atol=1e-3)


def test_caches_and_models_can_tell_it_apart(file):
    found = [load_encoder(uri) for uri in (file, f"size:24:{file}", f"size:32:{file}")]
    assert len({e.key for e in found}) == len({e.fingerprint for e in found}) == 3
    assert load_encoder(f"size:16:{file}").fingerprint == found[0].fingerprint


def test_it_means_the_same_in_another_folder(file, monkeypatch):
    monkeypatch.chdir(file)
    assert located("size:24:encoder.safetensors") == f"size:24:{file / 'encoder.safetensors'}"


@pytest.mark.parametrize(
    "rest",
    ["", "24", "x:y", "0:y", "9:y", "9999:y", "024:y", "٢٤:y", "9" * 5000 + ":y", "24:size:32:y"],
)
def test_bad_sizes(rest):
    uri = f"size:{rest}"
    with pytest.raises(InputError) as error:
        load_encoder(uri)
    assert error.value.field == "encoder"


def test_a_network_of_one_size_says_so(tmp_path):
    pytest.importorskip("onnxruntime")
    write_onnx(tmp_path / "net.onnx", side=16)
    with pytest.raises(InputError) as error:
        load_encoder(f"size:20:onnx:{tmp_path / 'net.onnx'}")
    assert error.value.field == "encoder"
    assert "16" in error.value.fix
