"""Photos of phones and cameras: recognised by content, turned once, and bounded."""

from __future__ import annotations

import io
import struct
from contextlib import suppress

import numpy as np
import pillow_heif
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cala.data.decoding import ImageError, decode, decode_bytes, to_pixels
from cala.data.formats import FORMATS, LeftOut, is_system, left_out_note, sniff, why_left_out
from cala.data.sets import open_images

QUARTERS = np.zeros((64, 96, 3), np.uint8)  # the top left is red, the bottom left is blue
QUARTERS[:32, :48], QUARTERS[32:, :48] = (255, 0, 0), (0, 0, 255)


def heic(pixels: np.ndarray = QUARTERS, orientation: int = 1) -> bytes:
    """A HEIC file; the orientation is written as the format says (irot, imir) and into EXIF."""
    pillow_heif.register_heif_opener()  # to write only
    exif = Image.Exif()
    exif[0x0112] = orientation
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "HEIF", quality=90, exif=exif.tobytes())
    assert (b"irot" in written.getvalue()) == (orientation != 1)
    return written.getvalue()


def saved(kind: str, pixels: np.ndarray = QUARTERS, **options: object) -> bytes:
    if kind == "HEIF":
        return heic(pixels)
    if kind not in FORMATS:
        pytest.skip(f"this Pillow has no {kind}")
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, kind, **options)
    return written.getvalue()


@pytest.mark.parametrize("kind", ["HEIF", "AVIF", "JPEG2000", "JPEG", "PNG", "WEBP", "TIFF"])
def test_content_decides_whatever_the_name(tmp_path, kind):
    data = saved(kind)
    assert sniff(data[:64]) == kind
    for name in ("a.jpg", "a.dat", "noname"):
        path = tmp_path / name
        path.write_bytes(data)
        assert why_left_out(path) is None
        assert np.abs(decode(path)[0].astype(int) - QUARTERS).mean() < 4


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("kind", ["HEIF", "AVIF"])
def test_photos_are_turned_once(kind, orientation):
    upright = {1: 0, 3: 2, 6: -1, 8: 1}
    if kind == "HEIF":
        data = heic(orientation=orientation)
    else:
        exif = Image.Exif()
        exif[0x0112] = orientation
        data = saved(kind, exif=exif.tobytes())
    expected = np.rot90(QUARTERS, upright[orientation])
    pixels = decode_bytes(data, "a")
    assert pixels.shape == expected.shape
    assert np.abs(pixels.astype(int) - expected).mean() < 4


def test_a_photo_that_pillow_opened_itself_is_turned_once():
    pillow_heif.register_heif_opener()
    with Image.open(io.BytesIO(heic(orientation=6))) as image:
        pixels = to_pixels(image)
    assert np.abs(pixels.astype(int) - np.rot90(QUARTERS, -1)).mean() < 4


@pytest.mark.parametrize("kind", ["HEIF", "AVIF", "JPEG2000"])
def test_the_limit_of_pixels_and_files_cut_short(kind):
    data = saved(kind, np.random.default_rng(0).integers(0, 255, (128, 128, 3), np.uint8))
    assert decode_bytes(data, "a", max_pixels=128 * 128).shape == (128, 128, 3)
    with pytest.raises(ImageError) as caught:
        decode_bytes(data, "a", max_pixels=128 * 128 - 1)
    assert caught.value.code == "bomb"
    for share in (0.02, 0.3, 0.7):
        with pytest.raises(ImageError):
            decode_bytes(data[: int(share * len(data))], "a")


@pytest.mark.parametrize(("kind", "mark", "at"), [("HEIF", b"ispe", 8), ("JPEG2000", b"ihdr", 4)])
def test_a_header_that_says_fewer_pixels_than_there_are_is_refused(kind, mark, at):
    data = saved(kind, np.zeros((2048, 2048, 3), np.uint8))
    for place in [i for i in range(len(data)) if data.startswith(mark, i)]:
        data = data[: place + at] + struct.pack(">II", 64, 64) + data[place + at + 8 :]
    with pytest.raises(ImageError):
        decode_bytes(data, "a")


@given(st.sampled_from(["HEIF", "AVIF", "JPEG2000"]), st.data())
def test_any_bytes_give_an_image_or_a_named_error(kind, data):
    content = bytearray(saved(kind, QUARTERS[:32, :32]))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ImageError):
        assert decode_bytes(bytes(content), "a").shape[2] == 3


def test_files_that_are_not_photos(tmp_path):
    contents = {
        "a.MOV": (b"\0\0\0\x14ftypqt  \0\0\0\0qt  ", "video"),
        "a.bin": (b"\0\0\0\x18ftypmp42\0\0\0\0isommp42", "video"),
        "b.mp4": (b"", "video"),
        "a.CR2": (b"II*\0", "raw"),
        "a.AAE": (b"<plist/>", "other"),
    }
    left_out = []
    for name, (data, why) in contents.items():
        path = tmp_path / name
        path.write_bytes(data)
        assert why_left_out(path) == why
        left_out.append(LeftOut(path, why))
    assert "5 of 8" in left_out_note(left_out, 3)
    with pytest.raises(ImageError):
        decode(tmp_path / "a.MOV")


def test_what_systems_leave_behind_is_no_class_and_no_photo(tmp_path):
    for folder in ("robin", "@eaDir", "__MACOSX", ".git", "heron", "heron/more"):
        (tmp_path / folder).mkdir()
        Image.fromarray(QUARTERS).save(tmp_path / folder / "a.png")
    for name in ("Thumbs.db", ".DS_Store", "._a.png", "desktop.ini"):
        assert is_system(name)
        (tmp_path / "robin" / name).write_bytes(b"x")
    (tmp_path / "robin" / "clip.mov").write_bytes(b"")
    images = open_images(tmp_path, "folder")
    assert images.classes == ("heron", "robin")
    assert images.train.names == ("heron/a.png", "robin/a.png")
    found = {(one.path.name, one.why) for one in images.left_out}
    assert found == {("clip.mov", "video"), ("more", "folder")}
