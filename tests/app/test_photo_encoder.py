"""A photo that is sent is seen as one that lies in a folder is."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from PIL import Image

from cala.app.photo_encoder import PhotoEncoder
from cala.app.settings import Limits
from cala.app.uploads import Upload
from cala.encoders import load_encoder
from cala.encoders.embed import embed
from cala.model.photos import gather


@pytest.mark.parametrize("side", [100, 300, 1200])  # decoded whole, at a half, at an eighth
def test_service_and_files_give_the_same_embedding(tmp_path, side):
    path = tmp_path / "a.jpg"
    coarse = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize((side * 4 // 3, side)).save(path)
    encoder = load_encoder("resnet20-cifar100")
    service = PhotoEncoder(encoder, "none", Limits())
    upload = Upload("a.jpg", "images", "0" * 64, path.read_bytes())
    try:
        [(_, photo)], _ = asyncio.run(service.photos([upload], 60))
    finally:
        service.close()
    assert np.array_equal(photo.features, embed(gather(path), encoder)[0])
    whole = encoder([np.asarray(Image.open(path))])[0]
    cosine = photo.features @ whole / np.linalg.norm(photo.features) / np.linalg.norm(whole)
    assert cosine > 0.999
