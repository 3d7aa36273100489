"""Small copies of photos beside a model, where the user wants them, for the page to show."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from PIL import Image

from cala.data.decoding import Pixels
from cala.data.images import ImageSplit
from cala.files import write_bytes
from cala.store.content import Arrays

FOLDER = "thumbnails"
SIDE = 160
BATCH = 64


def write_thumbnails(model: Path, split: ImageSplit) -> list[Path]:
    """One JPEG per photo, called after the photo's digest; returns those that are new."""
    new: list[Path] = []
    digests = split.digests()
    lacking = [i for i, digest in enumerate(digests) if not thumbnail(model, digest).exists()]
    start = 0
    for batch in split.batches(BATCH, lacking) if lacking else ():
        for place, pixels in enumerate(batch):
            new += put_thumbnails(model, {digests[lacking[start + place]]: small_copy(pixels)})
        start += len(batch)
    return new


def put_thumbnails(model: Path, copies: Mapping[str, bytes]) -> list[Path]:
    """Small copies by the digests of their photos; returns the files that are new."""
    (model / FOLDER).mkdir(exist_ok=True)
    new = []
    for digest, copy in copies.items():
        path = thumbnail(model, digest)
        if not path.exists():
            write_bytes(path, copy)
            new.append(path)
    return new


def small_copy(pixels: Pixels) -> bytes:
    """A JPEG of at most 160 × 160 pixels."""
    picture = Image.fromarray(pixels)
    picture.thumbnail((SIDE, SIDE))
    written = io.BytesIO()
    picture.save(written, "JPEG", quality=85)
    return written.getvalue()


def thumbnail(model: Path, digest: str) -> Path:
    """Where the small copy of a photo lies, if there is one."""
    return model / FOLDER / f"{digest}.jpg"


def drop_thumbnails(model: Path, versions: Callable[[], Iterable[Arrays]]) -> None:
    """Delete those of photos that no version knows any more.

    versions : the photos of every version that can be reached, asked only if there are any
    """
    folder = model / FOLDER
    if not folder.is_dir():
        return
    keep = {bytes(row).hex() for photos in versions() for row in photos["digest"]}
    for path in folder.iterdir():
        if path.stem not in keep:
            with suppress(OSError):
                path.unlink()
