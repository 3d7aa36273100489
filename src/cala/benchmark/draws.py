"""`--draws canonical,random:20`: which shots every method sees."""

from __future__ import annotations

from collections.abc import Sequence

from cala.core.rows import Array
from cala.data.protocol import Protocol, ShotDraw, canonical_draw, random_draw
from cala.errors import InputError

FEW = 3


def parse_draws(text: str) -> list[str]:
    """Names of draws, in order and without repeats.

    >>> parse_draws("canonical,random:3")
    ['canonical', 'random:0', 'random:1', 'random:2']
    """
    names: list[str] = []
    for part in text.replace(" ", "").split(","):
        kind, _, count = part.partition(":")
        if part == "canonical":
            names.append(part)
        elif kind == "random" and count.isdecimal() and int(count) > 0:
            names += [f"random:{seed}" for seed in range(int(count))]
        else:
            raise InputError(f"draws {part!r}: give canonical, random:20, or both with a comma")
    return list(dict.fromkeys(names))


def few(draws: Sequence[str]) -> tuple[str, ...]:
    """The canonical draw and three others: for methods whose sessions take minutes.

    >>> few(["canonical", "random:0", "random:1", "random:2", "random:3"])
    ('canonical', 'random:0', 'random:1', 'random:2')
    """
    random = [name for name in draws if name != "canonical"][:FEW]
    return tuple(name for name in draws if name == "canonical" or name in random)


def make_draw(name: str, protocol: Protocol, labels: Array, usable: Array) -> ShotDraw:
    """The draw of a name; labels, usable : (n,) of the training rows."""
    if name == "canonical":
        return canonical_draw(protocol)
    return random_draw(protocol, labels, usable, int(name.removeprefix("random:")))
