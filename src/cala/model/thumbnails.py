"""Small copies of photos beside a model, unless the user wants none, to show them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from PIL import Image

from cala.data.decoding import Pixels
from cala.data.image_scan import in_order
from cala.data.images import ImageSplit
from cala.files import write_bytes
from cala.store.files import Group, check_not_linked, delete_own, own_files

FOLDER = "thumbnails"
OWN = own_files(r"[0-9a-f]{64}\.jpg")
SIDE = 160


def write_thumbnails(model: Path, split: ImageSplit) -> None:
    """One JPEG per photo that has none yet, called after the photo's digest."""
    digests = split.digests()
    lacking = [i for i, digest in enumerate(digests) if not thumbnail(model, digest).exists()]
    copies = in_order(lambda row: small_copy(split.pixels.image(row, 4 * SIDE)), lacking)
    for row, copy in zip(lacking, copies, strict=True):
        put_thumbnails(model, {digests[row]: copy})


def has_thumbnails(model: Path) -> bool:
    """Whether small copies are kept beside a model."""
    return (model / FOLDER).is_dir()


def put_thumbnails(model: Path, copies: Mapping[str, bytes]) -> None:
    """Write small copies by the digests of their photos."""
    check_not_linked(model / FOLDER)
    (model / FOLDER).mkdir(exist_ok=True)
    for digest, copy in copies.items():
        if not thumbnail(model, digest).exists():
            write_bytes(thumbnail(model, digest), copy)


def small_copy(pixels: Pixels) -> bytes:
    """A JPEG of at most 160 × 160 pixels."""
    picture = Image.fromarray(pixels)
    picture.thumbnail((SIDE, SIDE))
    written = io.BytesIO()
    picture.save(written, "JPEG", quality=85)
    return written.getvalue()


def thumbnail(model: Path, digest: str) -> Path:
    """The path of a photo's small copy, if there is one."""
    return model / FOLDER / f"{digest}.jpg"


def drop_thumbnails(model: Path, versions: Iterable[Group]) -> None:
    """Delete those of photos that no version knows any more.

    versions : the photos of every version that can be reached, read only if there are thumbnails
    """
    folder = model / FOLDER
    if folder.is_dir() and not folder.is_symlink():
        known = {f"{bytes(row).hex()}.jpg" for photos in versions for row in photos["digest"]}
        delete_own(folder, OWN, known)
