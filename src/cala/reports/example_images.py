"""Example images of confused classes, from a folder that the user passes."""

from __future__ import annotations

import base64
import io
import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from cala.errors import InputError
from cala.files import shown
from cala.reports.class_tables import Swallowed

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".ppm")
DEPTH, SIZE, EACH, MOST = 3, 96, 3, 6


@dataclass(frozen=True)
class Photos:
    """folders : class name in lower case -> folders of that name"""

    folder: Path
    folders: dict[str, list[Path]]


@dataclass(frozen=True)
class Example:
    """One novel class beside the base class that swallows it; images are data URIs."""

    novel: str
    base: str
    share: float
    novel_images: list[str]
    base_images: list[str]


def find_photos(folder: Path) -> Photos:
    """Folders down to a small depth, by name."""
    if not folder.is_dir():
        fix = "give one with a folder per class"
        raise InputError(f"--images {shown(folder)} is not a folder", fix, field="images")
    found: dict[str, list[Path]] = {}
    for place, inside, _ in os.walk(folder):
        path = Path(place)
        if len(path.relative_to(folder).parts) >= DEPTH:
            inside.clear()
        for name in sorted(inside):
            found.setdefault(name.lower(), []).append(path / name)
    return Photos(folder, found)


def find_examples(photos: Photos, worst: list[Swallowed], names: list[str]) -> list[Example]:
    """Of the worst cases whose two classes both have images."""
    found = (_example(photos, case, names) for case in worst)
    return list(islice((example for example in found if example), MOST))


def _example(photos: Photos, case: Swallowed, names: list[str]) -> Example | None:
    column, share = case.by[0]
    novel, base = names[case.column], names[column]
    images = _thumbnails(photos, novel), _thumbnails(photos, base)
    return Example(novel, base, share, *images) if all(images) else None


def _thumbnails(photos: Photos, name: str) -> list[str]:
    folders = photos.folders.get(name.lower(), [])
    files = (file for folder in folders for file in sorted(folder.iterdir()))
    made = (_thumbnail(file) for file in files if file.suffix.lower() in ENDINGS)
    return list(islice((uri for uri in made if uri), EACH))


def _thumbnail(path: Path) -> str:
    """A small JPEG as a data URI; empty if the file is not an image."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            small = image.convert("RGB")
            small.thumbnail((SIZE, SIZE))
            out = io.BytesIO()
            small.save(out, "JPEG", quality=85)
    except (OSError, ValueError, Image.DecompressionBombError):
        return ""
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()
