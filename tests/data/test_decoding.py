"""One file -> RGB: every kind of image, and every kind of file that is none."""

from __future__ import annotations

import io
import os
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cala.data import decoding
from cala.data.decoding import ImageError, decode, decode_bytes
from data.tiny_sets import picture
from refusals import refused

GREY = np.arange(0, 240, dtype=np.uint8).reshape(12, 20)


def png(width: int, height: int, depth: int, kind: int, rows: bytes) -> bytes:
    """A PNG by hand, for kinds that the library does not write."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def test_rgb_is_read_as_it_is(tmp_path):
    for suffix in ("png", "bmp", "tif", "tiff", "webp"):
        path = tmp_path / f"a.{suffix}"
        Image.fromarray(picture(1)).save(path, **({"lossless": True} if suffix == "webp" else {}))
        pixels, size = decode(path)
        assert np.array_equal(pixels, picture(1))
        assert pixels.dtype == np.uint8
        assert size == (20, 24)


def test_the_extension_does_not_matter(tmp_path):
    path = tmp_path / "really a png.JPG"
    Image.fromarray(picture(1)).save(path, format="PNG")
    assert np.array_equal(decode(path)[0], picture(1))


SCENE = np.asarray(Image.fromarray(picture(3)).resize((640, 480), Image.Resampling.BICUBIC))


@pytest.mark.parametrize(
    ("least", "shape"),
    [(None, (480, 640)), (241, (480, 640)), (240, (240, 320)), (120, (120, 160)), (1, (60, 80))],
)
def test_a_jpeg_is_decoded_no_larger_than_needed(tmp_path, least, shape):
    path = tmp_path / "a.jpg"
    Image.fromarray(SCENE).save(path, quality=95)
    found, size = decode(path, least=least)
    assert (found.shape[:2], size) == (shape, shape)
    expected = Image.fromarray(SCENE).resize(shape[::-1], Image.Resampling.BOX)
    assert np.abs(found.astype(int) - np.asarray(expected)).mean() < 3
    again = decode_bytes(path.read_bytes(), "a.jpg", least=least)
    assert np.array_equal(again, found)


@pytest.mark.parametrize("kind", ["turned", "grey", "CMYK", "MPO", "progressive"])
def test_every_kind_of_jpeg_can_be_decoded_smaller(tmp_path, kind):
    path = tmp_path / "a.jpg"
    image = Image.fromarray(SCENE).convert({"grey": "L", "CMYK": "CMYK"}.get(kind, "RGB"))
    exif = Image.Exif()
    exif[0x0112] = 6 if kind == "turned" else 1
    more = {"format": "MPO", "save_all": True, "append_images": [image]} if kind == "MPO" else {}
    image.save(path, exif=exif, progressive=kind == "progressive", **more)
    shape = (320, 240) if kind == "turned" else (240, 320)
    whole, half = decode(path)[0], decode(path, least=240)[0]
    assert half.shape == (*shape, 3)
    expected = Image.fromarray(whole).resize(shape[::-1], Image.Resampling.BOX)
    assert np.abs(half.astype(int) - np.asarray(expected)).mean() < 3


def test_other_formats_are_decoded_whole(tmp_path):
    path = tmp_path / "a.png"
    Image.fromarray(SCENE).save(path)
    assert np.array_equal(decode(path, least=60)[0], SCENE)


def test_greyscale_and_bitmaps(tmp_path):
    path = tmp_path / "a.png"
    Image.fromarray(GREY).save(path)
    assert np.array_equal(decode(path)[0], np.repeat(GREY[:, :, None], 3, 2))
    Image.fromarray(GREY > 100).save(path)
    assert np.array_equal(decode(path)[0][:, :, 1], np.where(GREY > 100, 255, 0))


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_scaled(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(GREY.astype(np.uint16) * 257).save(path)
    assert np.array_equal(decode(path)[0][:, :, 0], GREY)


def test_sixteen_bit_colour(tmp_path):
    wide = picture(2).astype(">u2") * 257
    rows = b"".join(b"\0" + row.tobytes() for row in wide)
    path = tmp_path / "a.png"
    path.write_bytes(png(24, 20, 16, 2, rows))
    assert np.array_equal(decode(path)[0], picture(2))


def test_numbers_of_32_bits(tmp_path):
    path = tmp_path / "a.tif"
    Image.fromarray(GREY.astype(np.float32) / 255).save(path)
    assert np.array_equal(decode(path)[0][:, :, 0], GREY)
    Image.fromarray(GREY.astype(np.int32)).save(path)
    assert np.array_equal(decode(path)[0][:, :, 0], GREY)
    broken = GREY.astype(np.float32)
    broken[0, 0] = np.nan
    Image.fromarray(broken).save(path)
    assert decode(path)[0][0, 0].tolist() == [0, 0, 0]


def test_transparency_is_laid_on_white(tmp_path):
    rgba = np.zeros((2, 2, 4), dtype=np.uint8)
    rgba[0, 0] = [200, 100, 0, 255]
    rgba[0, 1] = [0, 0, 0, 128]
    expected = [[[200, 100, 0], [127, 127, 127]], [[255, 255, 255], [255, 255, 255]]]
    path = tmp_path / "a.png"
    Image.fromarray(rgba).save(path)
    assert np.allclose(decode(path)[0], expected, atol=1)
    Image.fromarray(rgba).convert("LA").save(path)
    assert decode(path)[0][1, 1].tolist() == [255, 255, 255]


def test_palettes_with_and_without_transparency(tmp_path):
    indices = np.array([[0, 1], [2, 1]], dtype=np.uint8)
    image = Image.frombytes("P", (2, 2), indices.tobytes())
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    for suffix in ("png", "gif"):
        path = tmp_path / f"a.{suffix}"
        image.save(path)
        assert decode(path)[0].tolist() == [
            [[255, 0, 0], [0, 255, 0]],
            [[0, 0, 255], [0, 255, 0]],
        ]
        image.save(path, transparency=1)
        assert decode(path)[0][0].tolist() == [[255, 0, 0], [255, 255, 255]]


def test_rgb_with_one_transparent_colour(tmp_path):
    path = tmp_path / "a.png"
    pixels = np.zeros((2, 2, 3), dtype=np.uint8)
    pixels[0] = 90
    Image.fromarray(pixels).save(path, transparency=(90, 90, 90))
    assert decode(path)[0][:, 0].tolist() == [[255, 255, 255], [0, 0, 0]]


def test_cmyk(tmp_path):
    path = tmp_path / "a.jpg"
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(path, quality=100)
    assert np.allclose(decode(path)[0], [255, 0, 0], atol=3)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation(tmp_path, orientation):
    turned = {
        1: lambda a: a,
        2: np.fliplr,
        3: lambda a: np.rot90(a, 2),
        4: np.flipud,
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, -1),
        7: lambda a: np.rot90(a.transpose(1, 0, 2), 2),
        8: np.rot90,
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "a.png"
    Image.fromarray(picture(3)).save(path, exif=exif)
    pixels, size = decode(path)
    expected = turned[orientation](picture(3))
    assert np.array_equal(pixels, expected)
    assert size == expected.shape[:2]


def test_broken_exif_does_not_cost_the_image(tmp_path):
    path = tmp_path / "a.jpg"
    Image.fromarray(picture(3)).save(path, exif=b"Exif\0\0II*\0\xff\xff\xff\xff garbage")
    assert decode(path)[0].shape == (20, 24, 3)


@pytest.mark.parametrize("suffix", ["gif", "webp", "png", "tif"])
def test_the_first_frame_of_several(tmp_path, suffix):
    frames = [Image.new("RGB", (8, 6), colour) for colour in ("red", "lime", "blue")]
    path = tmp_path / f"a.{suffix}"
    options = {"lossless": True} if suffix == "webp" else {}
    frames[0].save(path, save_all=True, append_images=frames[1:], **options)
    assert np.unique(decode(path)[0].reshape(-1, 3), axis=0).tolist() == [[255, 0, 0]]


def test_one_pixel_and_resizing(tmp_path):
    path = tmp_path / "a.png"
    Image.new("RGB", (1, 1), (1, 2, 3)).save(path)
    assert decode(path)[0].tolist() == [[[1, 2, 3]]]
    pixels, size = decode(path, (5, 7))
    assert (pixels.shape, size) == ((5, 7, 3), (1, 1))


def test_the_pixel_limit_is_read_from_the_header(tmp_path):
    path = tmp_path / "bomb.png"
    path.write_bytes(png(9_300, 9_300, 8, 2, b""))
    with refused(path, "9300×9300", "50,000,000", kind=ImageError, code="bomb"):
        decode(path, max_pixels=50_000_000)
    path.write_bytes(png(100_000, 100_000, 8, 2, b""))
    with refused(path, kind=ImageError, code="bomb"):
        decode(path)
    Image.fromarray(picture(1)).save(path)
    with refused(path, "24×20", 479, kind=ImageError, code="bomb"):
        decode(path, max_pixels=479)
    assert decode(path, max_pixels=480)[0].shape == (20, 24, 3)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "bmp", "gif", "tif"])
def test_files_cut_short_are_named(tmp_path, suffix):
    path = tmp_path / f"cut.{suffix}"
    Image.fromarray(picture(1, 64, 64)).save(path)
    whole = path.read_bytes()
    for share in (0.02, 0.3, 0.7):
        path.write_bytes(whole[: int(share * len(whole))])
        with refused(path, kind=ImageError, code="bad_image"):
            decode(path)


def test_what_is_no_image_file(tmp_path, monkeypatch):
    path = tmp_path / "a.jpg"
    path.write_bytes(b"")
    with refused(path, "empty", kind=ImageError, code="bad_image"):
        decode(path)
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    with refused(path, "format", kind=ImageError, code="bad_image"):
        decode(path)
    for target in ("a folder.jpg", "pipe.jpg", "loop.jpg", "gone.jpg"):
        odd = tmp_path / target
        if target.startswith("a folder"):
            odd.mkdir()
        elif target.startswith("pipe"):
            os.mkfifo(odd)
        elif target.startswith("loop"):
            odd.symlink_to(odd)
        with refused(odd, kind=ImageError, code="bad_image"):
            decode(odd)

    def refuse(*args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Image, "open", refuse)
    with refused(path, "Permission denied", kind=ImageError, code="bad_image"):
        decode(path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path):
    path = tmp_path / "a.png"
    Image.fromarray(picture(1)).save(path)
    path.chmod(0)
    with refused(path, "Permission denied", kind=ImageError, code="bad_image"):
        decode(path)


def test_odd_names_stand_in_messages_as_one_line(tmp_path):
    path = tmp_path / "two\nlines 🐦 .jpg"
    path.write_bytes(b"x")
    with pytest.raises(ImageError) as caught:
        decode(path)
    assert r"two\nlines 🐦 .jpg" in str(caught.value)
    assert str(caught.value).isprintable()


@given(st.sampled_from(["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"]), st.data())
def test_any_bytes_give_an_image_or_a_named_error(tmp_path_factory, kind, data):
    path = tmp_path_factory.mktemp("any") / "a.jpg"
    Image.fromarray(picture(5, 9, 11)).save(path, format=kind)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    try:
        pixels, _ = decode(path, max_pixels=10_000)
    except ImageError as error:
        message = str(error)
    else:
        message = str(path)
        assert pixels.dtype == np.uint8
        assert pixels.shape[2] == 3
    assert str(path) in message


def tiff(*tiles: int, side: int = 64, order: str = "<") -> bytes:
    """A deflated TIFF in one square tile; several sizes become repeated entries of its header."""
    body = zlib.compress(bytes(3 * tiles[0] ** 2))
    entries = [(256, 3, 1, side), (257, 3, 1, side), (258, 3, 3, 0), (259, 3, 1, 8), (262, 3, 1, 2)]
    entries += [(277, 3, 1, 3)]
    entries += [(tag, 4, 1, tile) for tag in (322, 323) for tile in tiles]
    entries += [(324, 4, 1, 0), (325, 4, 1, len(body))]
    end = 8 + 2 + 12 * len(entries) + 4
    places = {258: end, 324: end + 6}
    out = b"II*\0" if order == "<" else b"MM\0*"
    out += struct.pack(f"{order}LH", 8, len(entries))
    for tag, kind, count, value in entries:
        short = kind == 3 and count == 1
        out += struct.pack(f"{order}HHL", tag, kind, count)
        out += struct.pack(f"{order}{'HH' if short else 'L'}", places.get(tag, value), *[0] * short)
    return out + struct.pack(f"{order}L3H", 0, 8, 8, 8) + body


@pytest.mark.parametrize("order", ["<", ">"])
def test_tiles_larger_than_the_image_are_refused_before_they_are_decoded(tmp_path, order):
    path = tmp_path / "tile.tif"
    for tiles in ((64,), (1024,)):
        path.write_bytes(tiff(*tiles, order=order))
        assert decode(path)[0].shape == (64, 64, 3)
    # Pillow takes the last of repeated entries, its decoder the first.
    for tiles in ((4096,), (4096, 64)):
        path.write_bytes(tiff(*tiles, order=order))
        with pytest.raises(ImageError) as caught:
            decode(path)
        assert caught.value.code == "bomb"


def test_a_large_image_may_be_one_tile(tmp_path):
    path = tmp_path / "whole.tif"
    path.write_bytes(tiff(2064, side=2050))
    assert decode(path)[0].shape == (2050, 2050, 3)


def test_tiles_of_a_big_tiff(tmp_path):
    entries = [(322, 4, 1, 26_000), (323, 16, 1, 26_000), (322, 3, 1, 64)]
    head = struct.pack("<2sHHHQQ", b"II", 43, 8, 0, 16, len(entries))
    content = head + b"".join(struct.pack("<HHQQ", *entry) for entry in entries)
    assert decoding._tile_pixels(io.BytesIO(content)) == 26_000**2
