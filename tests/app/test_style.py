"""Colours of the page, read from its own style sheet."""

from __future__ import annotations

import re

import pytest

from cala.app.factory import FILES

TEXT = 4.5  # WCAG 2.2, level AA
SHAPES = 3.0
PAIRS = [
    *((ink, ground, TEXT) for ink in ("ink", "soft", "main") for ground in ("ground", "card")),
    ("ink", "track", TEXT),
    ("soft", "track", TEXT),
    ("ink", "note-ground", TEXT),
    ("on-main", "main", TEXT),
    ("error", "error-ground", TEXT),
    ("error", "card", TEXT),
    ("bar-new", "card", TEXT),
    ("bar", "track", SHAPES),
    ("bar-new", "track", SHAPES),
    ("focus", "ground", SHAPES),
]


def schemes() -> dict[str, dict[str, str]]:
    text = (FILES / "style.css").read_text()
    roots = re.findall(r":root \{(.*?)\}", text, re.S)
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6})", root)) for root in roots)
    return {"light": light, "dark": {**light, **dark}}


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(scheme):
    colours = schemes()[scheme]
    for over, under, least in PAIRS:
        dark, light = sorted((luminance(colours[over]), luminance(colours[under])))
        assert (light + 0.05) / (dark + 0.05) >= least, (over, under)
