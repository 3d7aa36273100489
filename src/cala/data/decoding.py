"""One image file -> one (h, w, 3) uint8 array, or an error that names the file."""

from __future__ import annotations

import hashlib
import io
import stat
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from cala.errors import InputError
from cala.files import reason, shown

MAX_PIXELS = 100_000_000
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})
# A closed list: other decoders of the library start programs or read further files.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
for _format in ("Jpeg", "Png", "WebP", "Bmp", "Gif", "Tiff"):
    # The library loads decoders when the first file is opened, which is not safe in threads.
    import_module(f"PIL.{_format}ImagePlugin")
MOST_SCANS = 100  # progressive files have about ten; each is a pass over all pixels
STRIP = 1 << 20  # pixels that are wide numbers at a time
WHITE = (255, 255, 255, 255)

Pixels = NDArray[np.uint8]


class ImageError(InputError):
    """An image file that cannot be used; `why` is the cause alone."""

    def __init__(self, name: object, why: str) -> None:
        super().__init__(f"{shown(name)}: {why}")
        self.name, self.why = str(name), why

    def __reduce__(self) -> tuple[type[ImageError], tuple[str, str]]:
        return type(self), (self.name, self.why)


class ChangedImage(ImageError):
    """An image file that changed between two looks at it."""


def decode(
    path: Path,
    size: tuple[int, int] | None = None,
    max_pixels: int = MAX_PIXELS,
    digest: str | None = None,
) -> tuple[Pixels, tuple[int, int]]:
    """The first frame of an image file, upright, as RGB; transparency is laid on white.

    size : (h, w) to resize to, aspect not kept, as the field's test transforms do
    digest : the SHA-256 that the decoded bytes must have
    Returns the (h, w, 3) array and the (h, w) of the file.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would block for ever
            raise ImageError(path, "not a regular file")
        if digest is None:
            return _decoded(path, path, size, max_pixels)
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ChangedImage(path, "it changed while it was being read; run the command again")
        return _decoded(io.BytesIO(content), path, size, max_pixels)
    except ImageError:
        raise
    except Exception as error:  # decoders raise whatever broken bytes lead them to
        raise ImageError(path, _why(error, lambda: path.stat().st_size)) from error


def decode_bytes(data: bytes, name: str, max_pixels: int = MAX_PIXELS) -> Pixels:
    """(h, w, 3) of an image file that is in memory; `name` is for messages alone."""
    try:
        if data.startswith(b"\xff\xd8") and data.count(b"\xff\xda") > MOST_SCANS:
            raise ImageError(name, "a JPEG with too many scans: save it again, or leave it out")
        return _decoded(io.BytesIO(data), name, None, max_pixels)[0]
    except ImageError:
        raise
    except Exception as error:
        raise ImageError(name, _why(error, lambda: len(data))) from error


def _decoded(
    source: Path | BinaryIO, name: object, size: tuple[int, int] | None, max_pixels: int
) -> tuple[Pixels, tuple[int, int]]:
    with Image.open(source, formats=FORMATS) as opened:
        width, height = opened.size
        if width * height > max_pixels:
            raise ImageError(
                name,
                f"{width}×{height} pixels are more than the limit of {max_pixels:,}: "
                "make it smaller or leave it out",
            )
        image = _rgb(_upright(opened))
        found = (image.height, image.width)
        if size is not None and found != size:
            image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        return np.array(image), found


def to_pixels(image: Image.Image) -> Pixels:
    """(h, w, 3) of an image that is open already, upright, as RGB, on white."""
    try:
        return np.array(_rgb(_upright(image.copy())))
    except Exception as error:  # an image that is opened lazily may be broken
        raise ImageError(getattr(image, "filename", "") or "image", reason(error)) from error


def _why(error: Exception, length: Callable[[], int]) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "empty file" if length() == 0 else "not an image of a known format, or damaged"
    if isinstance(error, Image.DecompressionBombError):
        return "more pixels than the image library accepts: make it smaller or leave it out"
    return reason(error)


def _upright(image: Image.Image) -> Image.Image:
    image.load()
    with suppress(Exception):  # broken EXIF beside good pixels is no reason to lose the image
        ImageOps.exif_transpose(image, in_place=True)
    return image


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode == "F" or image.mode.startswith("I"):
        return Image.fromarray(_eight_bits(np.asarray(image))).convert("RGB")
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
