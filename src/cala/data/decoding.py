"""One image file -> one (h, w, 3) uint8 array, or an error that names the file."""

from __future__ import annotations

import hashlib
import io
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from cala.data.formats import FORMATS, HEAD_BYTES, PLUGINS, cannot_read, sniff
from cala.errors import InputError
from cala.files import reason, shown

MAX_PIXELS = 100_000_000
MAX_SIDE = 65_535  # as of JPEG: every row takes memory of its own, also one of a single pixel
FEWEST_SCANS, MOST_SCANS = 20, 100  # that are allowed; progressive files have about ten
SCANNED = 1_000_000_000  # pixels that all scans together go over, beyond the fewest
TILE_SIDE = 2048  # tiles of up to this side squared are fine in images of any size
STRIP = 1 << 20  # pixels that are converted to wide numbers at a time
CHANGED = "image_changed"  # the code of the error for a file that is not what it was
_AGAIN = "run the command again; if that does not help, run `cala cache clear memos`"
WHITE = (255, 255, 255, 255)

Pixels = NDArray[np.uint8]
Size = tuple[int, int]  # (h, w)


class ImageError(InputError):
    """An image file that cannot be used; `why` is the cause alone."""

    code = "bad_image"

    def __init__(
        self, name: object, why: str, fix: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(f"{shown(name)}: {why}", fix, code=code)
        self.name, self.why = str(name), why

    def __reduce__(self) -> tuple[type[ImageError], tuple[str, str, str | None, str]]:
        return type(self), (self.name, self.why, self.fix, self.code)


def decode(
    path: Path,
    size: Size | None = None,
    max_pixels: int = MAX_PIXELS,
    digest: str | None = None,
    least: int | None = None,
) -> tuple[Pixels, Size]:
    """Read the first frame of an image file, upright, as RGB, with transparency on white.

    size : to resize to, without keeping the aspect, as the field's test transforms do
    digest : the SHA-256 that the decoded bytes must have
    least : a side that is enough; a larger JPEG is decoded at a half, a quarter or an eighth of its
        size, as long as both sides keep this length, which is several times quicker
    Returns the (h, w, 3) array and the size of the file's image, as it was decoded.
    """
    with _named(path):
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would block
            raise ImageError(path, "not a regular file")
        if not status.st_size:
            raise ImageError(path, "empty file")
        if digest is None:
            with path.open("rb") as file:
                return _decoded(file, path, size, max_pixels, least)
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ImageError(path, "it changed while it was being read", _AGAIN, CHANGED)
        return _decoded(io.BytesIO(content), path, size, max_pixels, least)


def decode_bytes(
    data: bytes,
    name: str,
    max_pixels: int = MAX_PIXELS,
    least: int | None = None,
    admit: Callable[[int], object] = lambda pixels: None,
) -> Pixels:
    """(h, w, 3) of an image file in memory, as `decode` does.

    name : for messages only; admit : called with the number of pixels before they are decoded
    """
    with _named(name):
        if not data:
            raise ImageError(name, "empty file")
        return _decoded(io.BytesIO(data), name, None, max_pixels, least, admit)[0]


@contextmanager
def _named(name: object) -> Iterator[None]:
    """Turn whatever decoders raise on broken bytes into an error that names the file."""
    try:
        yield
    except ImageError:
        raise
    except UnidentifiedImageError as error:
        raise ImageError(name, "not an image of a known format, or damaged") from error
    except Image.DecompressionBombError as error:
        raise _bomb(name, "more pixels than the image library accepts") from error
    except MemoryError as error:
        raise _bomb(name, "it takes too much memory") from error
    except Exception as error:
        raise ImageError(name, reason(error)) from error


def _bomb(name: object, why: str) -> ImageError:
    return ImageError(name, why, "make it smaller, or leave it out", "bomb")


def _decoded(
    file: BinaryIO,
    name: object,
    size: Size | None,
    max_pixels: int,
    least: int | None,
    admit: Callable[[int], object] = lambda pixels: None,
) -> tuple[Pixels, Size]:
    with _opened(file, name) as opened:
        width, height = opened.size
        if width * height > max_pixels:
            why = f"{width}×{height} pixels are more than the limit of {max_pixels:,}"
            raise _bomb(name, why)
        if max(width, height) > MAX_SIDE:
            raise _bomb(name, f"{width}×{height} pixels: a side is longer than {MAX_SIDE:,}")
        place = file.tell()
        if opened.format == "TIFF" and _tile_pixels(file) > max(TILE_SIDE**2, 2 * width * height):
            raise _bomb(name, f"a TIFF of {width}×{height} pixels in far larger tiles")
        if opened.format in ("JPEG", "MPO"):
            most = min(MOST_SCANS, max(FEWEST_SCANS, SCANNED // max(1, width * height)))
            file.seek(0)
            if file.read().count(b"\xff\xda") > most:
                raise _bomb(name, f"a JPEG of {width}×{height} pixels with more than {most} scans")
        file.seek(place)
        admit(width * height)
        if least is not None:
            opened.draft(None, (least, least))  # does nothing to other formats than JPEG
        pixels = _pixels(_upright(opened))
    found = pixels.shape[:2]
    if size is not None and found != size:
        image = Image.fromarray(pixels).resize((size[1], size[0]), Image.Resampling.BILINEAR)
        pixels = np.array(image)
    return pixels, (found[0], found[1])


def _opened(file: BinaryIO, name: object) -> Image.Image:
    kind = sniff(file.read(HEAD_BYTES))
    file.seek(0)
    if kind and kind not in FORMATS:
        raise ImageError(name, cannot_read(kind))
    if kind != "HEIF":
        return Image.open(file, formats=tuple(PLUGINS))
    import pillow_heif

    pillow_heif.options.DECODE_THREADS = 1  # images are decoded in threads, each by one
    try:
        # It turns pixels as the file says and tells EXIF so: they are not turned again.
        return pillow_heif.HeifImageFile(file)
    except SyntaxError as error:
        raise ImageError(name, f"a damaged HEIC photo ({reason(error)})") from error


def _tile_pixels(file: BinaryIO) -> int:
    """Return the pixels of a TIFF's tile, which its decoder holds in memory; 0 without tiles.

    The header is read here because libraries disagree on which of repeated entries counts.
    """
    file.seek(0)
    head = file.read(16)
    order: Literal["little", "big"] = "little" if head.startswith(b"II") else "big"
    big = int.from_bytes(head[2:4], order) == 43  # BigTIFF
    count_size, wide = (8, 8) if big else (2, 4)
    file.seek(int.from_bytes(head[8:16] if big else head[4:8], order))
    entries = min(int.from_bytes(file.read(count_size), order), 1 << 16)
    sides = {322: 0, 323: 0}  # TileWidth, TileLength
    for _ in range(entries):
        entry = file.read(4 + 2 * wide)
        tag, kind = (int.from_bytes(entry[at : at + 2], order) for at in (0, 2))
        if tag in sides:
            value = entry[4 + wide :][: {1: 1, 3: 2, 4: 4}.get(kind, wide)]
            sides[tag] = max(sides[tag], int.from_bytes(value, order))
    return sides[322] * sides[323]


def to_pixels(image: Image.Image) -> Pixels:
    """(h, w, 3) of an open image, upright, as RGB, on white."""
    with _named(getattr(image, "filename", "") or "image"):  # opened lazily, it may be broken
        return _pixels(_upright(image.copy()))


def _upright(image: Image.Image) -> Image.Image:
    image.load()
    with suppress(Exception):  # broken EXIF does not make good pixels useless
        ImageOps.exif_transpose(image, in_place=True)
    return image


def _pixels(image: Image.Image) -> Pixels:
    """(h, w, 3) of an image, converted a few rows at a time: copies of the whole would add up."""
    if image.mode == "F" or image.mode.startswith("I"):
        return np.repeat(_eight_bits(np.asarray(image))[..., None], 3, axis=2)
    found = np.empty((image.height, image.width, 3), np.uint8)
    rows = max(1, STRIP // max(1, image.width))
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        found[top : top + rows] = np.asarray(_rgb(strip))
    return found


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        ground = Image.new("RGBA", layer.size, WHITE)
        return Image.alpha_composite(ground, layer).convert("RGB")
    return image.convert("RGB")


def _eight_bits(values: NDArray[np.generic]) -> Pixels:
    """(h, w) of any number type -> uint8: 16- and 32-bit files are scaled, not clipped."""
    rows = max(1, STRIP // max(1, values.shape[1]))
    strips = [values[start : start + rows] for start in range(0, len(values), rows)]
    most = max(float(_finite(strip).max()) for strip in strips)
    factor, divisor = 1.0, 1.0
    if values.dtype.itemsize == 2:
        divisor = 257
    elif values.dtype.kind == "f":
        factor = 255 if most <= 1 else 1
    elif most > 65535:
        divisor = 2**24
    elif most > 255:  # 16-bit greyscale, which older libraries widen to 32
        divisor = 257
    scaled = [np.round(_finite(strip) * factor / divisor).clip(0, 255) for strip in strips]
    return np.concatenate([strip.astype(np.uint8) for strip in scaled])


def _finite(values: NDArray[np.generic]) -> NDArray[np.float64]:
    return np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
