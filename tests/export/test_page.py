"""The code of docs/export.md, run as it stands there."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import numpy as np
from PIL import Image

from cala.data.decoding import decode
from cala.encoders.transform import FILTERS, FITS, Transform
from cala.export import export_onnx
from export.small import make_model, need_onnx, photos

need_onnx()

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.S)


def run(*blocks: str) -> dict:
    space: dict = {}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), space)
    return space


def save(folder: Path, images: np.ndarray) -> list[Path]:
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{row:02}.jpg" for row in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path, quality=95)
    return paths


def test_the_page_adds_a_class_as_cala_does(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = make_model(tmp_path / "birds", classes=12)
    export_onnx(model, "birds.onnx")
    shots = save(tmp_path / "kingfisher", photos(15, 5, side=40))
    photo = save(tmp_path / "more", photos(15, 1, seed=8, side=40))[0]
    photo.rename("photo.jpg")
    space = run(*BLOCKS)
    model.add(shots, "kingfisher")
    expected = model.current.classifier.decision_function(model.embed("photo.jpg"))
    np.testing.assert_allclose(space["logits"], expected, atol=1e-4)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("['class")
    assert second == str(np.array(model.predict("photo.jpg", unknown="off")))
    assert np.load("birds.npz")["classes"].tolist() == model.classes


def test_adding_takes_ten_lines_and_no_torch():
    lines = [line for line in BLOCKS[-1].splitlines() if line and "import" not in line]
    assert len(lines) == 10
    assert "torch" not in "".join(BLOCKS)


def test_the_page_prepares_photos_as_cala_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    export_onnx(make_model(tmp_path / "birds", method="la"), "birds.onnx")
    space = run(BLOCKS[0])
    draw = np.random.default_rng(0)
    for size in [(40, 61), (61, 40), (14, 14), (33, 333), (12, 90), (300, 200)]:
        path = save(tmp_path / "photos", draw.integers(0, 256, (1, *size, 3), dtype=np.uint8))[0]
        for fit, name in product(FITS, FILTERS):
            space["how"].update(fit=fit, filter=name)
            fields = {k: v for k, v in space["how"].items() if k not in ("inside", "outside")}
            expected = Transform.from_dict(fields).prepare(decode(path)[0])
            np.testing.assert_array_equal(space["prepare"](path), expected)
