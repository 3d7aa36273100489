"""The page: one HTML file that holds everything it shows."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

from cala.reports.section import Section
from cala.reports.table import Table


@dataclass
class Part:
    """One study on the page; prefix : put before its anchors where there are several"""

    dataset: str
    headline: str
    summary: Table
    sections: list[Section]
    prefix: str = ""


def render(title: str, parts: list[Part], svgs: dict[str, str], notes: list[str], made: str) -> str:
    """svgs : inline SVG by picture name; notes : what is missing; made : by which version"""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    files = resources.files("cala.reports")
    template = files.joinpath("page.html").read_text("utf-8")
    css = files.joinpath("page.css").read_text("utf-8")
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    return environment.from_string(template).render(
        title=title,
        parts=parts,
        svgs={name: Markup(svg) for name, svg in svgs.items()},
        notes=notes,
        made=made,
        css=Markup(css),
    )
