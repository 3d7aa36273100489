"""Where embeddings come from, as plain lines for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from cala.files import shown

WIDTH = 80


def provenance_lines(values: Mapping[str, Any], limit: int = 5, indent: str = "  ") -> list[str]:
    """One entry per line, what is inside an entry behind its name; long lines are wrapped.

    >>> for line in provenance_lines({"encoder": "mine", "transform": {"size": 32, "fit": "crop"}}):
    ...     print(line)
      encoder: mine
      transform: size=32, fit=crop
    """
    return list(_lines(values, limit, indent))


def _lines(values: Mapping[str, Any], limit: int, indent: str) -> Iterator[str]:
    for key, value in values.items():
        if not isinstance(value, Mapping):
            yield from _wrapped(f"{shown(key)}: {_text(value, limit)}", indent)
            continue
        inner = {k: v for k, v in value.items() if isinstance(v, Mapping)}
        flat = [f"{shown(k)}={_text(v, limit)}" for k, v in value.items() if k not in inner]
        yield from _wrapped(f"{shown(key)}: {', '.join(flat)}".rstrip(), indent)
        yield from _lines(inner, limit, f"{indent}  ")


def _text(value: Any, limit: int) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        more = f"/… ({len(value):,})" if len(value) > limit else ""
        return ("/".join(_inside(v, limit) for v in value[:limit]) or "none") + more
    if isinstance(value, Mapping):
        return " ".join(f"{shown(k)}={_text(v, limit)}" for k, v in value.items()) or "none"
    return shown(value)


def _inside(value: Any, limit: int) -> str:
    text = _text(value, limit)
    return f"({text})" if isinstance(value, list | tuple) else text


def _wrapped(line: str, indent: str) -> list[str]:
    return textwrap.wrap(
        line,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
