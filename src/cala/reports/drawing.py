"""One look for all figures, and how they are written.

A palette that colour-blind readers can tell apart (Okabe and Ito's, without its yellow), line
styles and markers that survive printing in grey. matplotlib is imported when one is drawn.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cala.files import atomic, write_text
from cala.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID, PAPER = "#1a1a1a", "#666666", "#dcdcdc", "#ffffff"
#: The first is for what others are compared with.
COLOURS = ("#4d4d4d", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
BASE, NOVEL = COLOURS[1], COLOURS[2]
LINES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
MARKERS = "os^DvPX<>*hpd8"
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

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.0,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "text.parse_math": False,  # a $ in a class name is a dollar
    "svg.fonttype": "none",
    "svg.hashsalt": "cala",
    "image.interpolation": "none",
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


def look(index: int) -> dict[str, Any]:
    """Colour, line and marker of the method at this place; no two of the first 28 are alike."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": LINES[index % len(LINES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def make_figure(
    columns: int, height: float, width: float = WIDTH, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False, **options)[0]
    return figure, list(axes)


def sessions_axis(axes: Axes, first: int, last: int) -> None:
    """Whole sessions, all of them labelled as long as they fit."""
    step = 1 if last - first <= 12 else 2
    axes.set_xticks(range(first, last + 1, step))
    axes.set_xlabel("session")
    if first == last:
        axes.set_xlim(first - 0.5, last + 0.5)


def class_axis(axes: Axes, count: int) -> None:
    """Classes in order of arrival, whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(-0.7, count - 0.3)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    axes.set_xlabel("class, in order of arrival")


def band(
    axes: Axes, x: Sequence[int], found: Sequence[Estimate], style: dict[str, Any], among: int
) -> None:
    """A line of means with a band of their intervals; among : how many lines share the axes"""
    alpha = 0.15 if among <= 5 else 0.07 if among <= 8 else 0.03
    mean = [f.mean for f in found]
    half = [f.half if f.half == f.half else 0.0 for f in found]
    low = [m - h for m, h in zip(mean, half, strict=True)]
    high = [m + h for m, h in zip(mean, half, strict=True)]
    axes.fill_between(x, low, high, color=style["color"], alpha=alpha, lw=0)
    axes.plot(x, mean, **style)


End = tuple[float, str, dict[str, Any]]


def end_labels(axes: Axes, ends: Sequence[End], gap: float = 11.5) -> None:
    """Names at the right end of lines, moved apart where they would overlap.

    ends : (height in data, name, look); gap : smallest distance in points
    """
    ends = [end for end in ends if end[0] == end[0]]
    low, high = axes.get_ylim()
    points = axes.get_window_extent().height * 72 / axes.figure.dpi
    unit = (high - low) / points
    order = sorted(range(len(ends)), key=lambda i: ends[i][0])
    heights = spread([ends[i][0] for i in order], gap * unit, low, high)
    across = axes.get_yaxis_transform()
    for i, height in zip(order, heights, strict=True):
        value, name, style = ends[i]
        colour, marker = style["color"], style["marker"]
        axes.plot(
            [1.0, 1.035], [value, height], color=colour, lw=0.7, transform=across, clip_on=False
        )
        axes.plot(1.05, height, marker, color=colour, ms=3.5, transform=across, clip_on=False)
        axes.text(1.075, height, name, color=colour, va="center", fontsize=8, transform=across)


def spread(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Sorted values moved as little as needed to be `gap` apart and, if possible, inside.

    >>> spread([1.0, 1.0, 5.0], 1.0, 0.0, 10.0)
    [0.5, 1.5, 5.0]
    """
    if not values:
        return []

    def inside(centre: float, size: int) -> float:
        room = (high - low - gap * (size - 1)) / 2
        middle = (low + high) / 2
        return middle if room < 0 else min(max(centre, middle - room), middle + room)

    groups: list[tuple[float, int]] = []  # mean of the members, their number
    for value in values:
        centre, size = value, 1
        while groups:
            other, count = groups[-1]
            if inside(centre, size) - inside(other, count) >= gap * (size + count) / 2:
                break
            groups.pop()
            centre = (centre * size + other * count) / (size + count)
            size += count
        groups.append((centre, size))
    return [inside(c, n) + gap * (k - (n - 1) / 2) for c, n in groups for k in range(n)]
