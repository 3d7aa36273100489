"""Drawn pictures to try the page with: no photo of one's own is needed."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw

SIDE = 320
LEARNED = 6  # pictures of each class that the sample model learns from
GROUNDS = ("#f3efe6", "#dfeaf2", "#e9f0df", "#f6e3dc", "#e8e2f1", "#fbf3cf")

Pen = ImageDraw.ImageDraw
Draw = np.random.Generator


def _apple(pen: Pen, draw: Draw) -> None:
    skin = draw.choice(["#c3272b", "#d9482b", "#7fae2c", "#b3122e"])
    for left in (60, 130):
        pen.ellipse((left, 95, left + 130, 255), fill=skin)
    pen.ellipse((85, 105, 120, 150), fill="#f2b8a8")
    pen.line((160, 105, 172, 55), fill="#5b3a1e", width=9)
    pen.ellipse((170, 50, 225, 80), fill="#3f7d2c")


def _house(pen: Pen, draw: Draw) -> None:
    wall, roof = draw.choice(["#e8c38f", "#f2e6d0", "#c9d6df"]), draw.choice(["#9c3b2e", "#4d5a68"])
    pen.rectangle((80, 145, 240, 265), fill=wall)
    pen.polygon(((60, 150), (160, 60), (260, 150)), fill=roof)
    pen.rectangle((200, 70, 222, 125), fill=roof)
    pen.rectangle((142, 200, 180, 265), fill="#6b4426")
    for left in (95, 193):
        pen.rectangle((left, 170, left + 32, 200), fill="#8fc1e3", outline="#ffffff", width=4)


def _tree(pen: Pen, draw: Draw) -> None:
    green = draw.choice(["#2f7d32", "#4c8c2b", "#1f6b45"])
    pen.rectangle((148, 190, 172, 280), fill="#6b4a2b")
    for x, y, r in ((160, 110, 62), (112, 150, 48), (208, 150, 48), (160, 165, 55)):
        pen.ellipse((x - r, y - r, x + r, y + r), fill=green)


def _fish(pen: Pen, draw: Draw) -> None:
    scales = draw.choice(["#e8862e", "#3b8fc4", "#d9b13b"])
    pen.polygon(((225, 160), (285, 110), (285, 210)), fill=scales)
    pen.polygon(((140, 105), (190, 70), (200, 115)), fill=scales)
    pen.ellipse((50, 100, 245, 220), fill=scales)
    pen.arc((95, 110, 145, 210), 290, 70, fill="#ffffff", width=5)
    pen.ellipse((78, 135, 102, 159), fill="#ffffff")
    pen.ellipse((85, 141, 97, 153), fill="#1c1c1c")


def _umbrella(pen: Pen, draw: Draw) -> None:
    cloth = draw.choice(["#7a3fa0", "#c92f6d", "#2f6fc9"])
    pen.pieslice((45, 70, 275, 290), 180, 360, fill=cloth)
    for x in (83, 160, 237):
        pen.ellipse((x - 38, 164, x + 38, 200), fill=0)
    pen.line((160, 160, 160, 255), fill="#333333", width=9)
    pen.arc((156, 230, 200, 274), 0, 180, fill="#333333", width=9)


CLASSES: dict[str, Callable[[Pen, Draw], None]] = {
    "apple": _apple,
    "fish": _fish,
    "house": _house,
    "tree": _tree,
}
STRANGER = "umbrella"  # what the sample model does not know, to be taught
#: Pictures to try it with.
TRIED = tuple((label, number) for number in (6, 7) for label in (*CLASSES, STRANGER))


def pictures() -> list[tuple[str, str, bytes]]:
    """Class, name and JPEG of what the sample model learns from."""
    pairs = [(label, number) for label in CLASSES for number in range(LEARNED)]
    return [(label, f"{label} {number}.jpg", picture(label, number)) for label, number in pairs]


@lru_cache(maxsize=64)
def picture(label: str, number: int) -> bytes:
    """One drawn picture as JPEG; the same number gives the same picture."""
    figure = _umbrella if label == STRANGER else CLASSES[label]
    draw = np.random.default_rng([sum(label.encode()), number])
    layer = Image.new("RGBA", (SIDE, SIDE))
    figure(ImageDraw.Draw(layer), draw)
    size = int(SIDE * draw.uniform(0.62, 0.95))
    layer = layer.rotate(float(draw.normal(0, 9)), Image.Resampling.BICUBIC)
    layer = layer.resize((size, size), Image.Resampling.LANCZOS)
    ground = Image.new("RGB", (SIDE, SIDE), str(draw.choice(GROUNDS)))
    line = ImageDraw.Draw(ground)
    level = int(SIDE * draw.uniform(0.6, 0.85))
    line.rectangle((0, level, SIDE, SIDE), fill=str(draw.choice(GROUNDS)))
    for _ in range(40):
        x, y = draw.integers(0, SIDE, 2).tolist()
        r = math.ceil(draw.uniform(1, 3))
        line.ellipse((x - r, y - r, x + r, y + r), fill=str(draw.choice(GROUNDS)))
    x, y = draw.integers(0, SIDE - size + 1, 2).tolist()
    ground.paste(layer, (x, y), layer)
    written = io.BytesIO()
    ground.save(written, "JPEG", quality=88)
    return written.getvalue()
