"""Example images of confused classes, from a folder that the user passes."""

from __future__ import annotations

import base64
import io
import os
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Examples:
    """Of several novel classes."""

    examples: list[Example]


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


def find_examples(photos: Photos, worst: list[Swallowed], names: list[str]) -> Examples | None:
    """Of the worst cases whose two classes both have images; None if no case has."""
    made: list[Example] = []
    for case in worst:
        if len(made) == MOST:
            break
        column, share = case.by[0]
        novel, base = (_thumbnails(photos, names[c]) for c in (case.column, column))
        if novel and base:
            made.append(Example(names[case.column], names[column], share, novel, base))
    return Examples(made) if made else None


def _thumbnails(photos: Photos, name: str) -> list[str]:
    made: list[str] = []
    for folder in photos.folders.get(name.lower(), []):
        for file in sorted(folder.iterdir()):
            if file.suffix.lower() in ENDINGS and (uri := _thumbnail(file)):
                made.append(uri)
            if len(made) == EACH:
                return made
    return made


def _thumbnail(path: Path) -> str:
    """A small JPEG as a data URI; empty if the file is no image."""
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
