"""One look for all figures, and how they are written.

A palette that colour-blind readers can tell apart (Okabe and Ito's, without its yellow), line
styles and markers that survive printing in grey. matplotlib is imported when one is drawn.
"""

from __future__ import annotations

import html
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cala.files import atomic, write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID, PAPER = "#1a1a1a", "#666666", "#dcdcdc", "#ffffff"
#: The first is for what others are compared with.
COLOURS = ("#4d4d4d", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
BASE, NOVEL = COLOURS[1], COLOURS[2]
WIDTH = 7.4
PNG_DPI = 160
#: Colours that the page sets itself, so that figures follow light and dark.
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    PAPER: "--paper",
    **{colour: f"--c{i}" for i, colour in enumerate(COLOURS)},
}


@dataclass(frozen=True)
class Picture:
    """caption : states n and what intervals mean; alt : what is to be seen, in one sentence"""

    name: str
    title: str
    caption: str
    alt: str
    figure: Figure


def save_picture(picture: Picture, folder: Path) -> str:
    """Write SVG and PNG; returns the SVG for a page."""
    figure = picture.figure
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, not again for each format
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = _tidy(buffer.getvalue())
    write_text(folder / f"{picture.name}.svg", svg)
    with atomic(folder / f"{picture.name}.png") as temporary:
        figure.savefig(temporary, format="png", dpi=PNG_DPI, metadata={"Software": None})
    return inline(svg, picture.name, picture.alt)


def inline(svg: str, name: str, alt: str) -> str:
    """An SVG as part of a page: ids of its own, colours of the page, no header."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'(xlink:href|href)="#([^"]+)"', rf'\1="#{name}-\2"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
    for colour, variable in VARIABLES.items():
        body = body.replace(f": {colour}", f": var({variable})")
    opening, rest = body.split(">", 1)
    width = re.search(r'\swidth="([\d.]+)pt"', opening)
    inches = float(width[1]) / 72 if width else 7.0
    opening = re.sub(r'\s(width|height)="[^"]*"', "", opening)
    words = f'style="--inches: {inches:.1f}" role="img" aria-label="{html.escape(alt)}"'
    return f"{opening} {words}>{rest}"


def _tidy(svg: str) -> str:
    """Without metadata that names times and places on the network."""
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.S)
    svg = re.sub(r"<!DOCTYPE[^>]*>\s*", "", svg)
    return svg.replace(
        "font-family: 'DejaVu Sans'", "font-family: 'DejaVu Sans', Verdana, sans-serif"
    )


def clipped(name: str, most: int = 24) -> str:
    """A name short enough for a figure.

    >>> clipped("a class with quite a long name", 12)
    'a class wit…'
    """
    return name if len(name) <= most else name[: most - 1].rstrip() + "…"


def make_figure(
    columns: int, height: float, width: float = WIDTH, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False, **options)[0]
    return figure, list(axes)
