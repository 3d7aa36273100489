"""Photos of every odd kind: each ends in a named error or in a correct answer."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cala.errors import InputError
from model.photos import photo

PIXELS = photo(4, 500)


def png_header(width: int, height: int) -> bytes:
    """A PNG that promises an image of this size and has none."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    empty = chunk(b"IDAT", zlib.compress(b""))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + empty + chunk(b"IEND", b"")


def saved(path: Path, pixels=PIXELS, mode: str | None = None, **options) -> Path:
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(path, **options)
    return path


def whole(path: Path) -> bytes:
    return saved(path).read_bytes()


def large(path: Path) -> bytes:
    return saved(path, np.tile(PIXELS, (9, 9, 1))).read_bytes()


def sixteen_bits(path: Path) -> Path:
    grey = np.asarray(Image.fromarray(PIXELS).convert("L")).astype(np.uint16) * 257
    Image.fromarray(grey).save(path)
    return path


def animated(path: Path) -> Path:
    frames = [Image.fromarray(PIXELS), Image.fromarray(255 - PIXELS)]
    frames[0].save(path, save_all=True, append_images=frames[1:])
    return path


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


# name -> how to make it, and whether it is a photo of class 4
KINDS = {
    "plain.png": (saved, True),
    "name with spaces.png": (saved, True),
    "emoji 🐦 and\nnewline.png": (saved, True),
    "-leading dash.png": (saved, True),
    "quality.jpg": (lambda p: saved(p, quality=95), True),
    "cmyk.jpg": (lambda p: saved(p, mode="CMYK", quality=95), True),
    "palette.png": (lambda p: saved(p, mode="P"), True),
    "alpha.png": (lambda p: saved(p, mode="RGBA"), True),
    "lossless.webp": (lambda p: saved(p, lossless=True), True),
    "plain.tiff": (saved, True),
    "plain.bmp": (saved, True),
    "animated.gif": (animated, None),
    "animated.png": (animated, True),
    "really a png.jpg": (lambda p: saved(p, format="PNG"), True),
    "no extension": (lambda p: saved(p, format="PNG"), True),
    "16 bits.png": (sixteen_bits, None),
    "grey.png": (lambda p: saved(p, mode="L"), None),
    "one bit.png": (lambda p: saved(p, mode="1"), None),
    "1x1.png": (lambda p: saved(p, PIXELS[:1, :1]), None),
    "strip.png": (lambda p: saved(p, np.tile(PIXELS[:1], (1, 900, 1))), None),
    "empty.png": (lambda p: written(p, b""), False),
    "text.jpg": (lambda p: written(p, b"this is no photo" * 9), False),
    "cut.png": (lambda p: written(p, whole(p)[:-60]), False),
    "cut.jpg": (
        lambda p: written(p, saved(p, np.tile(PIXELS, (9, 9, 1))).read_bytes()[:900]),
        False,
    ),
    "huge.png": (lambda p: written(p, png_header(20_000, 20_000)), False),
    "larger still.png": (lambda p: written(p, png_header(2**31 - 1, 2**31 - 1)), False),
    "zero.png": (lambda p: written(p, png_header(0, 10)), False),
    "bad crc.png": (lambda p: written(p, whole(p)[:20] + b"\xff" + whole(p)[21:]), False),
}


@pytest.mark.parametrize("name", KINDS)
def test_an_answer_or_a_named_error(model, tmp_path, name):
    make, right = KINDS[name]
    path = make(tmp_path / name)
    before = (model.version, sorted(p.name for p in model.path.rglob("*")))
    if right is False:
        for call in (model.predict, lambda p: model.add(p, "odd")):
            with pytest.raises(InputError) as caught:
                call(path)
            assert name.split(".")[0] in str(caught.value)
        assert (model.version, sorted(p.name for p in model.path.rglob("*"))) == before
        return
    found = model.predict(path, unknown="off")
    assert found[0] in model.classes
    if right:
        assert found == ["class 4"]
    model.add(path, "odd")
    assert "odd" in model.classes


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def loop(path: Path) -> Path:
    path.symlink_to(path)
    return path


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def secret(path: Path) -> Path:
    saved(path).chmod(0)
    return path


@pytest.mark.parametrize("make", [pipe, loop, folder, secret])
def test_files_that_are_none(model, tmp_path, make, monkeypatch):
    path = make(tmp_path / "odd.png")
    if make is secret and os.geteuid() == 0:  # root may read everything, so it is refused by hand
        opened = Path.open

        def refusing(self, *given, **named):
            if self.name == path.name:
                raise PermissionError(13, "Permission denied", str(self))
            return opened(self, *given, **named)

        monkeypatch.setattr(Path, "open", refusing)
    for call in (model.predict, lambda p: model.add(p, "odd")):
        with pytest.raises(InputError) as caught:
            call(path)
        assert "odd.png" in caught.value.detail
    assert model.version == 1


def test_folders_that_lead_into_themselves(model, tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "up").symlink_to(tmp_path / "a")
    saved(inner / "photo.png")
    assert model.predict(tmp_path / "a", unknown="off") == ["class 4"]
