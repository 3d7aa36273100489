"""Several views of an image, from training to a model of one's own photos."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from cala.export import export_onnx
from cala.model import load
from cli.inside import refusal
from export.small import need_onnx
from refusals import assert_names

QUICK = ["--recipe", "fast-cifar100", "--epochs", 1, "--batch", 8, "--threads", 1]


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.setenv("CALA_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for label, name in enumerate(("ant", "bee", "cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(8):
            pixels = draw.integers(0, 256, (30, 30, 3)).astype(np.uint8)
            pixels[5 * label : 5 * label + 9] //= 3
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def test_views_from_training_to_a_model(photos, tmp_path, inside):
    split = ["--test", 0.25]
    train = ["train", photos, "-o", "base", "--base", 2, *split, *QUICK]
    assert_names(refusal(*train, "--views", 2), "--views 2", "savc", field="views")
    code, _, error = inside(*train, "--method", "savc", "--views", 4)
    assert code == 0, error

    encode = ["encode", photos, "--encoder", "base", "--base", 2, *split, "--fakes", 2]
    for views, dimensions in ((None, 256), (2, 128), (1, 64), (7, 256)):
        more = [] if views is None else ["--views", views]
        code, printed, error = inside(*encode, "-o", f"{views}.npz", *more)
        assert code == 0, error
        assert f"{dimensions} dimensions" in printed
    with np.load("None.npz") as whole, np.load("2.npz") as two:
        np.testing.assert_allclose(whole["x_train"][:, :128], two["x_train"], atol=1e-5)
        assert two["part.views"].tolist() == [2]

    code, printed, error = inside(
        "run", photos, "--encoder", "savc=base", "--views", 2, "--base", 2, "--way", 1, "--shot",
        2, "--sessions", 2, *split, "--methods", "savc", "--draws", "random:2", "--fakes", 2, "-q",
    )  # fmt: skip
    assert code == 0, error
    assert "savc" in printed

    found = refusal("fit", photos, "-o", "no", "--encoder", "base", "--method", "savc")
    assert_names(found, "savc", field="method")
    uri = "views:2:base"
    code, _, error = inside("fit", photos, "-o", "model", "--encoder", uri, "--fakes", "feature")
    assert code == 0, error
    model = load("model")
    assert model.current.encoder.uri == f"views:2:{tmp_path / 'base'}"
    assert model.encoder.dim == 128
    assert model.predict([photos / "bee" / "0.png"], unknown="off")[0] in model.classes
    need_onnx()
    assert export_onnx(model, "model.onnx").difference < 1e-3
